package firewall

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/musterhq/muster/internal/fault"
)

// MountsConfig configures the limits of what one run mounts (its buckets and lazy volumes). The processes that mount it
// are on the host, in the run's control group (Confine), and use the host's line directly.
type MountsConfig struct {
	Host8  string
	Run    string // names the run on this host: letters, digits, "_" and "-"
	Egress Egress
	Caps   Caps       // the operator's limits for every lease
	Guest  netip.Addr // of the run on the bridge; the zero Addr: it has none
}

// Moved counts the bytes that a run's mounts have moved over the host's line.
type Moved struct {
	Up   uint64 // sent, including what was dropped above the limit
	Down uint64 // received, including what was dropped
}

// privateV6 lists the IPv6 networks that are not on the line to the internet.
const privateV6 = "::/127, fc00::/7, fe80::/10, ff00::/8"

// mountsTable is one run's. The limits are objects, so that what the guest moves and what its mounts move share them:
// the guest's packets pass here after the agent's own table has let them pass. What goes to private networks, or to
// networks that the host is in, is not on the line: the platform's store of volumes may be there.
var mountsTable = template.Must(template.New("").Parse(`table inet {{.Table}} {
	counter up { packets 0 bytes {{.Moved.Up}} }
	counter down { packets 0 bytes {{.Moved.Down}} }{{with .Up}}
	limit up_limit { rate over {{.}}; }{{end}}{{with .Down}}
	limit down_limit { rate over {{.}}; }{{end}}
	set near4 {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { {{.Near}} }
	}
	set near6 {
		type ipv6_addr
		flags interval
		elements = { {{.Near6}} }
	}
	chain forward {
		type filter hook forward priority filter - 9; policy accept;{{if .Guest}}{{if .Up}}
		iifname "{{.Bridge}}" ip saddr {{.Guest}} limit name "up_limit" drop{{end}}{{if .Down}}
		oifname "{{.Bridge}}" ip daddr {{.Guest}} limit name "down_limit" drop{{end}}{{end}}
	}
	chain output {
		type filter hook output priority filter - 9; policy accept;
		socket cgroupv2 level 2 "{{.Group}}" goto sent
	}
	chain input {
		type filter hook input priority filter - 9; policy accept;
		socket cgroupv2 level 2 "{{.Group}}" goto received
	}
	chain sent {
		ip daddr @near4 accept
		ip6 daddr @near6 accept
		counter name "up"{{if .Up}}
		limit name "up_limit" drop{{end}}
	}
	chain received {
		ip saddr @near4 accept
		ip6 saddr @near6 accept
		counter name "down"{{if .Down}}
		limit name "down_limit" drop{{end}}
	}
}
`))

var runShape = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func (c MountsConfig) validate() error {
	if !runShape.MatchString(c.Run) {
		return fault.New(fault.Invalid, "%q does not name a run", c.Run)
	}
	if c.Guest.IsValid() && !c.Guest.Is4() {
		return fault.New(fault.Invalid, "%s is no address on the bridge", c.Guest)
	}
	if c.Egress != EgressOff && c.Egress != EgressLimited && c.Egress != EgressFull {
		return fault.New(fault.Invalid, "egress %q is none of off, limited, full", c.Egress)
	}
	return Config{Host8: c.Host8, Caps: c.Caps}.validate()
}

// table returns the name of the run's table: no other run of the host has it, as ids of leases have no "-".
func (c MountsConfig) table() string {
	return Config{Host8: c.Host8}.Table() + "_" + strings.ReplaceAll(c.Run, "-", "_")
}

// render returns the run's table, whose counters begin with what was counted before.
func (c MountsConfig) render(near []netip.Prefix, group string, moved Moved) string {
	caps := c.Caps
	if c.Egress == EgressLimited {
		caps.UpMbps, caps.DownMbps = lower(caps.UpMbps, LimitedUpMbps), lower(caps.DownMbps, LimitedDownMbps)
	}
	private := slices.Clone(denied)
	for _, p := range near {
		private = append(private, p.String())
	}
	data := struct {
		Table, Bridge, Group, Near, Near6, Up, Down, Guest string
		Moved                                              Moved
	}{Table: c.table(), Bridge: Config{Host8: c.Host8}.Bridge(), Group: group, Moved: moved, Near6: privateV6,
		Near: strings.Join(private, ", ")}
	if caps.UpMbps > 0 {
		data.Up = rate(caps.UpMbps)
	}
	if caps.DownMbps > 0 {
		data.Down = rate(caps.DownMbps)
	}
	if c.Guest.IsValid() {
		data.Guest = c.Guest.String()
	}
	var b strings.Builder
	if err := mountsTable.Execute(&b, data); err != nil {
		panic(err) // cannot fail: template and data are both defined here
	}
	return b.String()
}

// EnsureMounts makes the control group and the table of a run's mounts, and replaces a table that is not as cfg says by
// one that counts on. When it returns nil it has verified the table.
func (k *Keeper) EnsureMounts(ctx context.Context, cfg MountsConfig) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	group, err := makeGroup(cfg.Host8, cfg.Run)
	if err != nil {
		return fault.New(fault.Unavailable, "the control group of mounts cannot be made: %v", err)
	}
	near, err := onLink()
	if err != nil {
		return fault.New(fault.Unavailable, "the firewall cannot be read: find the host's own networks: %v", err)
	}
	text := cfg.render(near, group, Moved{})
	have, err := list(ctx, cfg.table())
	if err != nil {
		return fault.New(fault.Unavailable, "the firewall cannot be read: %v", err)
	}
	if known, ok := k.mounts[text]; ok && have.equal(known, true) {
		return nil
	}
	want, err := meaning(ctx, cfg.table(), text)
	if err != nil {
		return fault.New(fault.Unavailable, "the firewall of mounts cannot be tried: %v", err)
	}
	if !have.equal(want, true) {
		if err := load(ctx, replaced(cfg.table(), cfg.render(near, group, have.moved()))); err != nil {
			return fault.New(fault.Unavailable, "the firewall of mounts cannot be set: %v", err)
		}
		if have, err = list(ctx, cfg.table()); err != nil {
			return fault.New(fault.Unavailable, "the firewall cannot be read: %v", err)
		}
		if d := have.difference(want); d != "" {
			return fault.New(fault.Unavailable, "the firewall %s is not as it should be: %s", cfg.table(), d)
		}
	}
	if k.mounts == nil || len(k.mounts) >= maxMeant {
		k.mounts = map[string]listing{}
	}
	k.mounts[text] = want
	return nil
}

// maxMeant is of how many runs a Keeper keeps how their tables are listed.
const maxMeant = 256

// MountsMoved returns what a run's mounts have moved since their table was made. found is false if there is none.
func MountsMoved(ctx context.Context, host8, run string) (m Moved, found bool, err error) {
	l, err := list(ctx, MountsConfig{Host8: host8, Run: run}.table())
	if err != nil {
		return Moved{}, false, fault.New(fault.Unavailable, "the firewall cannot be read: %v", err)
	}
	return l.moved(), len(l) > 0, nil
}

// RemoveMounts deletes the table and the control group of a run's mounts, whose processes must have ended. It is no
// error if there are none.
func RemoveMounts(ctx context.Context, host8, run string) error {
	if !runShape.MatchString(run) {
		return fault.New(fault.Invalid, "%q does not name a run", run)
	}
	t := MountsConfig{Host8: host8, Run: run}.table()
	if err := load(ctx, fmt.Sprintf("add table inet %s\ndelete table inet %s\n", t, t)); err != nil {
		return fault.New(fault.Unavailable, "the firewall of mounts cannot be removed: %v", err)
	}
	if err := removeGroup(host8, run); err != nil {
		return fault.New(fault.Unavailable, "the control group of mounts cannot be removed: %v", err)
	}
	return nil
}

// SweepMounts deletes the tables and control groups of runs that are not known.
func SweepMounts(ctx context.Context, host8 string, known func(run string) bool) error {
	runs, err := groups(host8)
	errs := []error{err}
	for _, run := range runs {
		if !known(run) {
			errs = append(errs, RemoveMounts(ctx, host8, run))
		}
	}
	return errors.Join(errs...)
}

var probing sync.Mutex

// MountsLimited returns why this host cannot limit and count what mounts move, or nil.
func MountsLimited(ctx context.Context) (err error) {
	probing.Lock()
	defer probing.Unlock()
	cfg := MountsConfig{Host8: "00000000", Run: fmt.Sprintf("probe-%d", os.Getpid()), Egress: EgressLimited,
		Guest: netip.AddrFrom4([4]byte{192, 0, 2, 1})}
	group, err := makeGroup(cfg.Host8, cfg.Run)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeGroup(cfg.Host8, cfg.Run)) }()
	_, err = meaning(ctx, cfg.table(), cfg.render(nil, group, Moved{}))
	return err
}

// moved reads the counters of a run's table.
func (l listing) moved() (m Moved) {
	for _, o := range l {
		kind, b := body(o)
		bytes, _ := b["bytes"].(float64)
		switch {
		case kind != "counter":
		case b["name"] == "up":
			m.Up = uint64(bytes)
		case b["name"] == "down":
			m.Down = uint64(bytes)
		}
	}
	return m
}
