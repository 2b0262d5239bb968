//! Edge and Hub state machines over noq-proto.
