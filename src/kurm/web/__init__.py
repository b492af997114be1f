"""What daemons show over HTTP: health and metrics."""
