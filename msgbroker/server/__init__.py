"""The broker: gRPC services, committer, dispatch and cluster loops around the pure engine."""
