"""Commands about captures: calibrate, trace."""
