// Package cluster manages rented clusters: from the rent, through start, running, loss and restart, to the end and the
// last settled second.
//
// Invariants:
//   - A cluster changes only under the lock of its row, by a transition of the table in lifecycle. The pure
//     lifecycle.Next decides from facts what to do, so every replica decides alike.
//   - A rent is one transaction: claims, leases with frozen prices, money for at least 60 s, nodes, revisions. It takes
//     effect as a whole or not at all, and never takes a GPU that another live claim holds.
//   - Seconds count from the last rank's start, as its host proves it, until the run ends, and only while every
//     required rank is proven up: a start that fails is free.
//   - A rank has one live lease. A lease that is lost for good ends before another host takes its rank, and stays
//     ended.
//   - The barrier of an epoch opens once, after every rank has reached it and has measured its network with the others.
//   - Reports are facts, never orders: reports about other hosts' leases and about old epochs are rejected; late and
//     repeated reports change nothing.
//   - A GPU stays claimed until its host, knowing of the lease's end, reports that nothing is left, or is given up.
//   - PostgreSQL's clock, read after the lock, decides; the clocks of replicas and hosts never do.
package cluster

import (
	"log/slog"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/text"
)

// Config configures Clusters. Zero durations take the defaults.
type Config struct {
	Currency string    // of all prices and wallets, as market.Config's
	Box      *seal.Box // seals environment and registry credentials at rest
	Log      *slog.Logger
	// Relays are the host:port addresses of all relays, RelaySecret the secret that they share with the control plane.
	Relays      []string
	RelaySecret []byte

	// Starts limits for how long an organisation may hold GPUs before it pays for them; zero: not at all.
	Starts fairness.StartRules
	// KnownRegistries are registries that no renter runs: an image of theirs that is pulled slowly does not count against
	// the renter. An entry that begins with a dot stands for all names that end with it.
	KnownRegistries []string

	StartTimeout time.Duration // rent or restart to the barrier; 30 min
	GoTimeout    time.Duration // barrier released to every rank started; 30 s
	LostAfter    time.Duration // silence of a running node until it counts as lost; 35 s
	StartSilence time.Duration // silence of a starting node until it counts as lost; 150 s
	LossGrace    time.Duration // how long a lost node may take to come back; 90 s
	ReplaceWait  time.Duration // on_node_failure: replace: how long a lost rank waits for another host; 120 s
	// OneSided is how long a single rank may claim to receive nothing from another one before the cluster is suspended;
	// 30 s.
	OneSided time.Duration
	// UndGrace is how long a suspension may last for which no host is to blame; 45 s. In a run younger than Young (15 min)
	// it may last UndYoung (2 s): little is lost by starting again.
	UndGrace, Young, UndYoung time.Duration
	// AbandonAfter is how long the host of an ended lease may be silent before the cluster stops waiting for it: 10 min,
	// as host.AbandonAfter.
	AbandonAfter time.Duration
	// MaxState is the most that a host's desired state may take, in bytes; agentapi.MaxState.
	MaxState int
}

func (c Config) withDefaults() Config {
	if c.MaxState == 0 {
		c.MaxState = agentapi.MaxState
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&c.StartTimeout, 30 * time.Minute}, {&c.GoTimeout, fairness.GoTimeout}, {&c.LostAfter, 35 * time.Second},
		{&c.StartSilence, 150 * time.Second}, {&c.LossGrace, 90 * time.Second}, {&c.AbandonAfter, 10 * time.Minute},
		{&c.ReplaceWait, 120 * time.Second},
		{&c.OneSided, 30 * time.Second}, {&c.UndGrace, 45 * time.Second}, {&c.Young, 15 * time.Minute},
		{&c.UndYoung, 2 * time.Second},
	} {
		if *d.v == 0 {
			*d.v = d.d
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Clusters are the use cases of clusters, by who or what they serve. They are safe for concurrent use and keep no state
// in memory that other replicas lack.
type Clusters struct {
	Views    *Views
	Rentals  *Rentals
	Hosts    *Hosts
	Logs     *Logs
	Ingress  *Ingress
	Secrets  *Secrets
	Watchdog *Watchdog
}

// New returns a Clusters. It starts no goroutines. b may be nil.
func New(d *db.DB, m *market.Market, b *bus.Bus, config Config) *Clusters {
	config = config.withDefaults()
	cfg := &config
	machine := &machine{db: d, market: m, bus: b, cfg: cfg, log: cfg.Log}
	views := &Views{db: d, bus: b, cfg: cfg}
	return &Clusters{
		Views:    views,
		Rentals:  &Rentals{db: d, market: m, bus: b, cfg: cfg, machine: machine, views: views},
		Hosts:    &Hosts{db: d, bus: b, cfg: cfg, log: cfg.Log, machine: machine},
		Logs:     &Logs{db: d},
		Ingress:  &Ingress{db: d, box: cfg.Box, views: views},
		Secrets:  &Secrets{db: d, box: cfg.Box, log: cfg.Log},
		Watchdog: &Watchdog{db: d, market: m, cfg: cfg, log: cfg.Log, machine: machine},
	}
}

// errNotFound is returned for clusters that do not exist and for those of other organisations.
var errNotFound = fault.New(fault.NotFound, "cluster not found")

// Conversions between the database's types and those of the rules.

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func intp(v *int32) *int {
	if v == nil {
		return nil
	}
	n := int(*v)
	return &n
}

// join puts two pieces of a sentence together.
func join(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + " (" + b + ")"
}

func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToLower(r)) + s[n:]
}

// clip cleans a text from a host and limits it to n bytes.
func clip(s string, n int) string { return text.OneLine(text.Clip(s, n)) }
