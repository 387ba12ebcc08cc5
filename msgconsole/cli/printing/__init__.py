"""What is printed: tables, JSON, progress, sentences that several commands say; and the streams it goes to."""
