"""What goes on, and who did what: lag, usage, who is connected, alarms, jobs, acts, the audit trail."""
