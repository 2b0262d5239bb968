//! TUN, UDP sockets, netlink and nftables.
