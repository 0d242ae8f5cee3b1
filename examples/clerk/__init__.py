"""An invoice clerk that reads what has come in and books it; what is large, somebody of finance has to agree to."""
