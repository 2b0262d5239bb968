//! The HTTP/3 subset and capsules of CONNECT-IP, as a state machine.
