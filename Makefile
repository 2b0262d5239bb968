# make demo    two emulated links, one tunnel over both, one link cut: under two minutes after the build
# make test    every test; those that need root say so when they are skipped
# make lint    format, clippy, layers, licences, comments, links of the book
# make bench   the scenarios of lab/ with a tuned build, each three times, and at the end one table of
#              what was to be reached, also as docs/src/results.md; seven hours and a half, of which loss-table and fec
#              take two (less, and only the table: make bench BENCH="bond-300-80 failover" REPEAT=1)
# make bench-linerate
#              TCP and small packets over an unshaped link through Sennit, wireguard-go and the least that a
#              tunnel must do, side by side, each five times; what Sennit costs idle, and with 60 edges on
#              one hub: about an hour
# make bench-operate
#              what it costs to run it: the API asked and the page watched under load, reloads, a drill, kills, what
#              doctor says; one table, seven minutes after the build
# make chaos   real daemons in namespaces: 500 reconnects, 100 failovers, hub and edges killed under load, a full disk,
#              no file descriptors, deleted interfaces, moved MTUs, 60 edges; one table of what happened and what it
#              left behind, and exit code 1 if anything; a quarter of an hour after the build (less: make chaos
#              CHAOS="chaos-starved chaos-interfaces")
# make soak    an hour of traffic both ways: does memory or goodput drift? 100,000 forged first packets a second: what
#              do tunnels and newcomers notice? One table, and exit code 1 if anything was not reached; an hour and
#              five minutes after the build (less: make soak SOAK=flood)
# make seeds   every figure that the documents published which this project began with, played here three times: one
#              scenario each in lab/seeds, and a page beside the published figures and the prediction,
#              docs/seeds.html; exit code 1 if a figure is missed and nothing says why; an hour and a half (QUICK=1:
#              once and without what takes long, fifteen minutes; STABILITY=3600 REPEAT=1: once, and an hour in place of
#              the ten minutes for which one connection is watched)
# make build   target/release/sennit, and sennit-lab beside it, which `sennit lab` starts
# make packages
#              deb, rpm and a static program, for x86_64 and aarch64, under packages/
# make page    web/dist, the page that the daemon shows to browsers: the next build takes it into the program;
#              needs Node 20.19, and without it the program says where the page would be that it is not built
# make page-test
#              the page in Chromium: what it shows, with a keyboard, on a phone, by the rules of accessibility
# make fuzz    each fuzz target for a minute (SECONDS=60), from the corpus that is committed
# make miri    tests of what reads packets and capsules, and of what threads share, under Miri; needs rustup, which
#              installs it
# make install the program without its lab, and its systemd units, under PREFIX, and the user that daemons become: what a
#              user may not write, sudo copies; `sudo make install` copies what `make build` has built
# make uninstall
#              what `make install` has copied goes; configs, keys and that user stay, and so does what runs
#
# With TUNED=1 the compiler learns from a minute of traffic which code is hot: 7 to 36 % more at line rate, but the
# build takes eight minutes instead of three and needs root. bench and bench-linerate do so unless told TUNED=.
#
# Each installs the Debian or Ubuntu packages it needs when a command of theirs is missing.

PREFIX ?= /usr/local
BENCH ?= bond-300-80 twin-100 four-links late-link profiles failover trouble redundant classes class-links overflow unshaped lan \
	mixed far-ship far-three moving small-path hole nat neighbour long renewal shared-link shared-two found-link varying-link isolation nineteen \
	recipe-vlans recipe-marks recipe-host recipe-voip flood loss-table rtt fairness fec fec-cost voice
LINERATE ?= linerate idle edges
REPEAT ?= $(if $(filter bench-linerate,$(MAKECMDGOALS)),5,$(if $(or $(QUICK),$(filter chaos soak,$(MAKECMDGOALS))),1,3))
# What the results page says was measured [what the results say].
BUILD ?=
# The page is of all scenarios, or stays as it is.
PAGE = $(if $(filter file,$(origin BENCH)),--markdown docs/src/results.md $(if $(BUILD),--build "$(BUILD)"))
RELEASE = $(or $(CARGO_TARGET_DIR),target)/$(if $(TUNED),tuned,release)
ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# To copy files to where they are used.
TO_COPY := $(if $(DESTDIR),,$(ROOT))
# Has systemd read units that came or went.
READ_UNITS = @[ -n "$(DESTDIR)" ] || [ ! -d /run/systemd/system ] || $(TO_COPY) systemctl daemon-reload

# The commit of 2026-05-22.
WIREGUARD_GO := golang.zx2c4.com/wireguard@v0.0.0-20260522210424-ecfc5a8d5446
GOBIN = $(abspath $(RELEASE))/go

# command:package
TO_BUILD := cc:build-essential
TO_MEASURE := ip:iproute2 iperf3:iperf3 nft:nftables ping:iputils-ping ethtool:ethtool sysctl:procps
TO_INTEROPERATE := go:golang-go pip3:python3-pip
TO_COMPARE := wg:wireguard-tools
TO_BUILD_PAGE := node:nodejs npm:npm

OPERATE ?= operate killed page
CHAOS ?= chaos-starved chaos-interfaces chaos-failovers chaos-reconnects chaos-edges
SOAK ?= flood soak

.PHONY: demo test lint bench bench-linerate bench-operate chaos soak seeds build packages install uninstall page page-test fuzz miri

demo: build
	@tools/need $(TO_MEASURE)
	$(ROOT) $(RELEASE)/sennit lab demo

# Without root, the tests that would use these tools are skipped.
test:
	@tools/need cargo $(TO_BUILD) $(if $(ROOT),,$(TO_MEASURE) $(TO_INTEROPERATE) $(TO_COMPARE) wireguard-go:wireguard-go)
	-@tools/prometheus
	@tools/test

lint:
	@tools/need cargo $(TO_BUILD)
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo run --locked --quiet --package sennit-lint
	@# A Go that is too old for the module cannot look at it.
	if (cd interop && go list -m) >/dev/null 2>&1; then cd interop && ! gofmt -l . | grep . && go vet ./...; fi

# Plays scenarios and prints the table: $(call measure,SCENARIOS,NAME,OPTIONS,OPTIONS OF THE TABLE)
define measure
	@out=results/$(2)-$$(date -u +%Y%m%d-%H%M%S); failed=0; \
	for scenario in $(1); do \
		$(ROOT) $(RELEASE)/sennit lab run lab/$$scenario.toml --repeat $(REPEAT) --out $$out/$$scenario $(3) || failed=1; \
	done; \
	$(RELEASE)/sennit lab table $$out $(4) && exit $$failed
endef

bench bench-linerate: export TUNED ?= 1

bench: build
	@tools/need $(TO_MEASURE)
	$(call measure,$(BENCH),bench,,$(PAGE))

bench-linerate: build
	@tools/need $(TO_MEASURE) $(TO_COMPARE) go:golang-go
	GOBIN=$(GOBIN) go install $(WIREGUARD_GO)
	$(call measure,$(LINERATE),linerate,--wireguard-go $(GOBIN)/wireguard)

# The page is looked at where there are Node and Chromium. Some figures are of tests. Those of doctor need root, with
# which cargo runs them and builds nothing. The results belong to whoever called, so that the other tests can add theirs.
bench-operate: export SENNIT_RESULTS := $(CURDIR)/results/operate-$(shell date -u +%Y%m%d-%H%M%S)
bench-operate: build
	@tools/need $(TO_MEASURE)
	-@tools/need $(if $(CHROMIUM),,chromium:chromium)
	@failed=0; mkdir -p $$SENNIT_RESULTS; \
	for scenario in $(OPERATE); do \
		$(ROOT) $(RELEASE)/sennit lab run lab/$$scenario.toml --out $$SENNIT_RESULTS/$$scenario || failed=1; \
	done; \
	cargo test --locked --workspace --lib -- a_year_of_six_links || failed=1; \
	cargo test --locked --workspace --test daemons \
		$(if $(ROOT),--config 'target."cfg(unix)".runner="$(ROOT) --preserve-env"') -- doctor:: || failed=1; \
	$(RELEASE)/sennit lab table $$SENNIT_RESULTS && exit $$failed

chaos: build
	@tools/need $(TO_MEASURE)
	$(call measure,$(CHAOS),chaos,,--strict)

soak: build
	@tools/need $(TO_MEASURE)
	$(call measure,$(SOAK),soak,,--strict)

page:
	@tools/need $(TO_BUILD_PAGE)
	tools/page build

# What cannot be had is told, and its tests are skipped.
page-test:
	-@tools/need $(TO_BUILD_PAGE) $(if $(CHROMIUM),,chromium:chromium)
	@tools/page test

SECONDS ?= 60

# libFuzzer is written in C++.
fuzz:
	@tools/need cargo c++:build-essential
	tools/fuzz $(SECONDS) $(TARGETS)

miri:
	@tools/need cargo c++:build-essential
	tools/miri

seeds: build
	@tools/need $(TO_MEASURE)
	@out=results/seeds-$$(date -u +%Y%m%d-%H%M%S); failed=0; mkdir -p results; \
	for scenario in lab/seeds/*.toml; do \
		name=$$(basename $$scenario .toml); \
		case "$$name/$(STABILITY)" in stability/?*) \
			sed 's/^seconds = 600$$/seconds = $(STABILITY)/' $$scenario >$$out-stability.toml && \
			scenario=$$out-stability.toml;; \
		esac; \
		$(ROOT) $(RELEASE)/sennit lab run $$scenario --out $$out/$$name --repeat $(REPEAT) $(if $(QUICK),--quick) || failed=1; \
	done; \
	$(RELEASE)/sennit lab report $$out/* --title "Seeds" --strict --out docs/seeds.html && exit $$failed

build:
	@tools/need cargo $(TO_BUILD) $(if $(TUNED),$(TO_MEASURE))
	@tools/page build || true
	tools/build
	@tools/page missing

packages:
	@tools/need cargo $(TO_BUILD) aarch64-linux-gnu-g++:g++-aarch64-linux-gnu musl-gcc:musl-tools $(TO_BUILD_PAGE)
	@tools/page build || true
	tools/packages; status=$$?; tools/page missing; exit $$status

# The units of packages name /usr/bin/sennit. Under sudo, which does not find the cargo of who has built it, the
# program is taken as it is there.
install: $(if $(and $(SUDO_USER),$(wildcard $(RELEASE)/sennit)),,build)
	$(TO_COPY) install -d $(DESTDIR)/etc/sennit
	$(TO_COPY) install -D $(RELEASE)/sennit $(DESTDIR)$(PREFIX)/bin/sennit
	@for unit in packaging/systemd/*.service; do \
		sed 's|/usr/bin/sennit|$(PREFIX)/bin/sennit|' $$unit | $(TO_COPY) install -D -m 644 /dev/stdin \
			"$(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}" || exit 1; \
	done
	$(TO_COPY) install -D -m 644 packaging/sysusers.d/sennit.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/sennit.conf
	$(if $(DESTDIR),,$(TO_COPY) packaging/make-user)
	$(READ_UNITS)

uninstall:
	$(TO_COPY) rm -f $(DESTDIR)$(PREFIX)/bin/sennit $(DESTDIR)$(PREFIX)/lib/systemd/system/sennit-*.service \
		$(DESTDIR)$(PREFIX)/lib/sysusers.d/sennit.conf
	$(READ_UNITS)
	@[ -n "$(DESTDIR)" ] || ! systemctl --quiet is-active 'sennit-*.service' 2>/dev/null || \
		echo "What runs of Sennit goes on with the program that was deleted: stop it, or restart it with that of a package." >&2
