"""Every limit a user can meet, in one place. Units are in the names."""

from __future__ import annotations

from typing import Final

NAMESPACE_CHARS_MAX: Final = 64
TOPIC_CHARS_MAX: Final = 128
EVENT_CODE_CHARS_MAX: Final = 64
GROUP_CHARS_MAX: Final = 64
INSTANCE_ID_CHARS_MAX: Final = 128
HOST_CHARS_MAX: Final = 128
CLIENT_VERSION_CHARS_MAX: Final = 64
PROCESS_ID_BYTES: Final = 16
KEY_BYTES_MAX: Final = 256

BODY_BYTES_DEFAULT: Final = 8_192
BODY_BYTES_CEILING: Final = 4 * 1024 * 1024
"""The most a topic's own limit may be raised to."""

HEADERS_MAX: Final = 64
HEADERS_BYTES_MAX: Final = 4_096

FRAME_MESSAGES_MAX: Final = 1_000
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most a frame's messages may have in all; a single message of a topic with a higher limit may be alone in a larger
one."""
FRAMES_UNANSWERED_MAX: Final = 16
GRPC_MESSAGE_BYTES_MAX: Final = 512 * 1024
"""What a broker takes in at once, of a stream or a call. So much each stream may cost it that waits for something,
whoever is at the other end: it is small, and larger frames come in parts."""
FRAME_PART_BYTES_MAX: Final = GRPC_MESSAGE_BYTES_MAX - 64
"""How much of a frame goes into one gRPC message, beside what surrounds it there."""
FRAME_PART_BYTES_MIN: Final = 4 * 1024
"""The least that all parts of a frame but the last one have: a gRPC message costs a broker some hundred bytes, and some
hundred microseconds."""
FRAME_BYTES_CEILING: Final = BODY_BYTES_CEILING + 16 * 1024
"""A frame with the largest message there can be: body, headers, keys and names, and a hello."""
RECEIVE_BYTES_MIN: Final = BODY_BYTES_CEILING + 16 * 1024
"""What a client must be able to take in at once: the largest message there can be. Brokers send no more."""
GRPC_RESPONSE_BYTES_MAX: Final = 32 * 1024 * 1024
"""gRPC's own limit of 4 MiB, raised: what our client takes in, as earlier brokers sent more at once."""
REQUEST_SECONDS_MAX: Final = 10.0
"""How long a client may take to send what it has begun: a call's message, a stream's hello, and of a frame in parts as
much as a gRPC message may have."""

CREDIT_MAX: Final = 10_000
SETTLEMENT_RANGES_MAX: Final = 10_000
PULL_MESSAGES_MAX: Final = 1_000
PULL_MESSAGES_DEFAULT: Final = 32
PULL_WAIT_SECONDS_MAX: Final = 30.0
SETTLE_DELAY_SECONDS_MAX: Final = 7 * 86_400.0
ERROR_TEXT_CHARS_MAX: Final = 1_000

TRACE_RATE_DEFAULT: Final = 0.01
"""Of one message in a hundred all that happens is traced; of the others, what fails."""

QUEUES_DEFAULT: Final = 4
QUEUES_MAX: Final = 256
EVENT_CODES_PER_TOPIC_MAX: Final = 1_000
EXPRESSION_CHARS_MAX: Final = 4_096
EXPRESSION_COST_MAX: Final = 50_000
"""The most an expression may cost on the largest message there can be, in steps of about 10 ns: half a millisecond of a
broker's only event loop."""
EXPRESSION_SECONDS_MAX: Final = 0.005
"""What an expression may take for a message when it is tried at its registration. Ten times what the limit in steps
comes to, and a thousand times what an ordinary one takes: a slow machine refuses nothing harmless."""
SUBSCRIPTIONS_PER_GROUP_MAX: Final = 1_000
STRESS_RULES_PER_NAMESPACE_MAX: Final = 100
DESCRIPTION_CHARS_MAX: Final = 1_000
ACTOR_CHARS_MAX: Final = 128
REASON_CHARS_MAX: Final = 1_000
PAGE_ITEMS_DEFAULT: Final = 100
PAGE_ITEMS_MAX: Final = 1_000
INSPECTED_PLACES_MAX: Final = 1_000
"""Of so many messages a broker is asked at once where they are."""
CONNECTED_PAGE_DEFAULT: Final = 100
CONNECTED_PAGE_MAX: Final = 500
"""So many connected instances, or publishers, a broker tells at once."""
UNSETTLED_PAGE_DEFAULT: Final = 100
UNSETTLED_PAGE_MAX: Final = 1_000
"""So many unsettled messages a broker tells at once, and of so many lanes."""
UNSETTLED_PAGE_BYTES_MAX: Final = 524_288

RETENTION_DAYS_MAX: Final = 7
"""Days of messages kept. May be set lower, never higher."""
DEAD_LETTER_DAYS_DEFAULT: Final = 90
DEAD_LETTER_DAYS_MAX: Final = 3_650
"""Days of dead letters kept."""
FIGURE_DAYS: Final = 30
"""Days of what is counted of each minute kept."""

ATTEMPTS_MAX_CEILING: Final = 100
ACK_TIMEOUT_SECONDS_DEFAULT: Final = 60.0
ACK_TIMEOUT_SECONDS_MIN: Final = 1.0
ACK_TIMEOUT_SECONDS_MAX: Final = 12 * 3_600.0
HANDLE_SECONDS_DEFAULT: Final = 3_600.0
"""How long an instance may go on with what it has begun, by extending its time to answer again and again."""
HANDLE_SECONDS_CEILING: Final = 86_400.0
"""The most a group's own limit may be raised to."""
UNSETTLED_MAX_DEFAULT: Final = 5_000
"""How many messages one instance may hold unsettled. What it asks for follows its speed; this bounds it. Over the time
from hand-out to verdict (50 ms on a busy machine) it is also the fastest that one instance can get."""
RETRY_SCHEDULE_SECONDS_DEFAULT: Final[tuple[float, ...]] = (
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
)  # fmt: skip
"""Wait before the next attempt, by the number of attempts made; after the last entry comes the dead letter."""
RETRY_DELAY_SECONDS_MAX: Final = 7 * 86_400.0

LEASE_SECONDS_MAX: Final = 120.0
"""The longest lease of a lane that any broker may give itself. What is leased for longer was leased before the
database's clock was set back, and brokers of all versions cut it down to this: it is never raised."""
REDELIVERIES_PER_LANE_MAX: Final = 10_000
LANE_WINDOW_MAX: Final = 10_000
"""How far a lane's cursor may stay behind its last hand-out before stragglers are moved to redelivery."""
