"""What views save by sharing subplans."""
