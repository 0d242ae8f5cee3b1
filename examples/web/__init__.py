"""Runs behind a web server: started, followed and answered over HTTP."""
