//! The tunnel brain: classes, queues, scheduler, framing, deduplication.
