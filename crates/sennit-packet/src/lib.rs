//! Parse, checksum, segment and coalesce IP packets; build ICMP errors.
