"""How long a lane is leased to a broker, and why two brokers never deliver one lane.

Who owns a lane is said by one row of `cursor` in msgdb: the owner, an epoch, and until when the lease runs by the
database's clock. Five things together keep a lane with one broker:

* *Taking it.* A claim takes the row under its lock, and only where nobody owns it or its lease has passed. Of two
  brokers that claim together the second finds it taken. Each claim gives the lane an epoch that it never had.
* *Stopping in time.* An owner counts its lease from before it asked for it, and a margin less (`LeaseTerms`). The
  database begins to count later, so the owner has stopped when others may claim, whatever its renewals met with: the
  hub closes lanes whose lease has passed, and what leaves for an instance is held against the lease once more. The
  broker's clock goes on while its process, or the machine, stands still.
* *Writing as the owner.* Renewals, checkpoints and releases name owner and epoch, and change nothing where the row has
  others by now. A broker that stood still and goes on finds its lanes lost, and cannot undo what the next owner did.
* *Answering the owner.* What an instance settles names the epoch under which it was handed out: a verdict on what a
  former owner gave is never taken for one on what this one did.
* *Another history.* After a promotion the last renewals may be missing from the store, and a lane that is served looks
  free. So nobody claims what it did not serve itself, for the length of a lease (`LaneClaims`), and epochs go on above
  all that the former history can have given out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """For how long a broker leases its lanes, and until when it relies on that."""

    seconds: float = 8.0
    """How long the lanes of a broker that died stay with it."""
    margin_seconds: float = 1.0
    """A lane is stopped so long before its lease can have run out: clocks do not all run equally fast."""

    def relied_on_until(self, asked_at: float) -> float:
        """Return until when a lane is served whose lease the store was asked for at *asked_at*, by our clock."""
        return asked_at + self.seconds - self.margin_seconds

    @property
    def renewed_after_seconds(self) -> float:
        """How old a lease is when it is renewed: one that fails is tried again a few times before it has passed."""
        return self.seconds / 4
