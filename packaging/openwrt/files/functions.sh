# What the init scripts of Sennit have in common.

LIB=${SENNIT_LIB:-/usr/lib/sennit}
SENNIT=${SENNIT:-/usr/bin/sennit}
SERVICE=${SENNIT_SERVICE:-/etc/init.d/sennit}
TOML=${SENNIT_TOML:-/var/etc/sennit.toml}

# The role that is enabled, if any.
role() {
	local role
	for role in edge hub; do
		[ "$(uci -q get "sennit.@$role[0].enabled")" = 1 ] && echo "$role" && return
	done
}

# The config of a role: its own, or the one that is made of /etc/config/sennit.
config_of() {
	uci -q get "sennit.@$1[0].file" || echo "$TOML"
}

# Makes the config of /etc/config/sennit, in this file.
make_config() {
	mkdir -p "${1%/*}"
	uci -q export sennit | "$LIB/uci-to-toml" >"$1"
}

# For whoever is there, and for the log.
complain() {
	echo "$1" >&2
	logger -t sennit -p daemon.err "$1"
}
