"""The front door for gRPC: requests are decoded and checked here, and our errors become gRPC's."""
