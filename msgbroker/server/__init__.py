"""The broker: gRPC services, committer, delivery and cluster loops around the pure engine."""
