package firewall

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/musterhq/muster/internal/fault"
)

// Keeper keeps one agent's table as configured. It caches how this machine lists the rules, which takes a network
// namespace and two runs of nft to find out; while nothing has changed, a check is then one run of nft. Keeper never
// declares a table wrong from the cache: it first finds out again, because nft itself may have been updated. The zero
// Keeper has an empty cache. It is safe for concurrent use and makes one change at a time.
type Keeper struct {
	mu    sync.Mutex
	text  string  // text of the rules without leases
	means listing // how they are listed, with example elements in the egress sets
	// mounts has, by the texts of runs' tables of mounts, how they are listed.
	mounts map[string]listing

	probed    bool // whether it is known if this kernel counts open connections
	uncounted bool // the kernel cannot count them
}

// Ensure isolates the bridge's ports and makes the table as cfg says: it loads the table if it is missing or was
// changed, and otherwise only moves leases between the egress sets, which keeps their flow counts. When it returns nil
// it has verified the table. A port that is added meanwhile is isolated by the Ensure of its own lease.
func (k *Keeper) Ensure(ctx context.Context, cfg Config) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, have, want, err := k.compare(ctx, cfg)
	if err != nil {
		return err
	}
	if err := separate(cfg.Bridge()); err != nil {
		return fault.New(fault.Unavailable, "the firewall cannot be set: %v", err)
	}
	switch {
	case have.equal(want, true):
		return nil
	case have.equal(want, false):
		err = load(ctx, moves(cfg, have))
	default:
		err = load(ctx, replaced(cfg.Table(), text))
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the firewall cannot be set: %v", err)
	}
	return k.verify(ctx, cfg)
}

func (k *Keeper) verify(ctx context.Context, cfg Config) error {
	_, have, want, err := k.compare(ctx, cfg)
	if err != nil {
		return err
	}
	if d := have.difference(want); d != "" {
		return fault.New(fault.Unavailable, "the firewall %s is not as it should be: %s", cfg.Table(), d)
	}
	return nil
}

// compare returns the text of the table, what the kernel has, and what the text means to the kernel.
func (k *Keeper) compare(ctx context.Context, cfg Config) (text string, have, want listing, err error) {
	if err := cfg.validate(); err != nil {
		return "", nil, nil, err
	}
	if err := k.probeKernel(ctx); err != nil {
		return "", nil, nil, fault.New(fault.Unavailable, "the firewall cannot be tried: %v", err)
	}
	near, err := onLink()
	if err != nil {
		return "", nil, nil, fault.New(fault.Unavailable, "the firewall cannot be read: find the host's own networks: %v",
			err)
	}
	have, err = list(ctx, cfg.Table())
	if err == nil {
		want, err = k.meaning(ctx, cfg, near, have)
	}
	if err != nil {
		return "", nil, nil, fault.New(fault.Unavailable, "the firewall cannot be read: %v", err)
	}
	return render(cfg, near, !k.uncounted), have, want, nil
}

// Uncapped describes in a sentence which limit this machine cannot enforce, or returns "".
func (k *Keeper) Uncapped(ctx context.Context) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.probeKernel(ctx); err != nil {
		return "", fault.New(fault.Unavailable, "the firewall cannot be tried: %v", err)
	}
	if k.uncounted {
		return "This kernel cannot count connections (nft_connlimit is missing): a lease may have any number open at once.",
			nil
	}
	return "", nil
}

// probeKernel finds out, once, whether the kernel counts open connections: in a temporary namespace in which all the
// other rules are known to load.
func (k *Keeper) probeKernel(ctx context.Context) error {
	if k.probed {
		return nil
	}
	cfg := Config{Host8: "00000000", Leases: examples}
	_, err := meaning(ctx, cfg.Table(), render(cfg, nil, true))
	if err != nil {
		if _, without := meaning(ctx, cfg.Table(), render(cfg, nil, false)); without != nil {
			return err // the failure has another cause
		}
	}
	k.probed, k.uncounted = true, err != nil
	return nil
}

// examples are the leases of the rules whose listing is cached: documentation addresses, which no guest has.
var examples = map[netip.Addr]Egress{
	netip.MustParseAddr("192.0.2.1"): EgressFull,
	netip.MustParseAddr("192.0.2.2"): EgressLimited,
}

// meaning returns how this machine lists cfg's rules. It uses the cache if have differs from it only in leases that are
// to be moved.
func (k *Keeper) meaning(ctx context.Context, cfg Config, near []netip.Prefix, have listing) (listing, error) {
	text := render(Config{cfg.Host8, examples, cfg.Caps}, near, !k.uncounted)
	if text == k.text {
		want, err := k.means.with(cfg)
		if err != nil {
			return nil, err
		}
		if have.equal(want, true) || (have.equal(want, false) && !have.admits(cfg)) {
			return want, nil
		}
	}
	l, err := meaning(ctx, cfg.Table(), text)
	if err != nil {
		return nil, err
	}
	k.text, k.means = text, l
	return l.with(cfg)
}

// with returns l with cfg's leases in place of the examples.
func (l listing) with(cfg Config) (listing, error) {
	out := make(listing, len(l))
	for i, o := range l {
		out[i] = o
		kind, b := body(o)
		egresses, ok := egressSets[fmt.Sprint(b["name"])]
		if kind != "set" || !ok {
			continue
		}
		elems, _ := b["elem"].([]any)
		if n := len(Config{Leases: examples}.members(egresses)); len(elems) != n {
			return nil, fmt.Errorf("nft lists %d elements in a set of %d", len(elems), n)
		}
		set := map[string]any{}
		for k, v := range b {
			set[k] = v
		}
		delete(set, "elem")
		var named []any
		for _, a := range cfg.members(egresses) {
			x, err := renamed(elems[0], a)
			if err != nil {
				return nil, err
			}
			named = append(named, x)
		}
		if len(named) > 0 {
			set["elem"] = named
		}
		out[i] = map[string]any{kind: set}
	}
	return out, nil
}

// renamed returns an example element with another address.
func renamed(example any, a netip.Addr) (x any, err error) {
	b, err := json.Marshal(example)
	if err != nil {
		return nil, err
	}
	text := string(b)
	for e := range examples {
		text = strings.ReplaceAll(text, `"`+e.String()+`"`, `"`+a.String()+`"`)
	}
	return x, json.Unmarshal([]byte(text), &x)
}

// admits reports whether the egress sets hold the addresses that they should, whatever their listing.
func (l listing) admits(cfg Config) bool {
	for set, egresses := range egressSets {
		listed, want := l.elements(set), cfg.members(egresses)
		slices.SortFunc(listed, netip.Addr.Compare)
		if !slices.Equal(listed, want) {
			return false
		}
	}
	return true
}
