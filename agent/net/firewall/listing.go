package firewall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/musterhq/muster/agent/net/netns"
)

// Tables are compared by what nft lists, not by their text: different versions of nft and of the kernel list the same
// text differently. So the wanted text is loaded into an empty, temporary network namespace, listed there by the same
// nft and kernel, and that listing is compared with the host's. This detects any rule that was added, removed or
// changed, without knowing how nft formats rules. Leases come and go without such a load: each is listed like the
// example of its set, with another address.

// listing is nft's JSON objects of a table, without what is not part of the rules (handles, counts).
type listing []map[string]any

// meaning returns how this machine lists text.
func meaning(ctx context.Context, table, text string) (l listing, err error) {
	err = netns.Empty(func() error {
		if err := load(ctx, text); err != nil {
			return err
		}
		l, err = list(ctx, table)
		return err
	})
	return l, err
}

// list reads the table in the current thread's namespace; a missing table has an empty listing.
func list(ctx context.Context, table string) (listing, error) {
	out, err := nft(ctx, "", "-j", "list", "table", "inet", table)
	if err != nil {
		if strings.Contains(err.Error(), "No such file or directory") {
			return nil, nil
		}
		return nil, err
	}
	return parse(out)
}

func load(ctx context.Context, text string) error {
	_, err := nft(ctx, text, "-f", "-")
	return err
}

// nft runs on the calling thread, and so in its network namespace.
func nft(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("the nft program is not installed (package nftables)")
	}
	if err != nil {
		return nil, fmt.Errorf("nft %s: %w: %s", args[len(args)-1], err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

func parse(out []byte) (listing, error) {
	var doc struct {
		Objects listing `json:"nftables"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		return nil, fmt.Errorf("read nft's listing: %w", err)
	}
	l := slices.DeleteFunc(doc.Objects, func(o map[string]any) bool { return o["metainfo"] != nil })
	return l, nil
}

// body returns an object's kind and content.
func body(o map[string]any) (kind string, b map[string]any) {
	for k, v := range o {
		m, _ := v.(map[string]any)
		return k, m
	}
	return "", nil
}

// canonical returns one line per object, sorted except for rules, whose order within a chain matters.
func (l listing) canonical(leases bool) []string {
	var lines []string
	place := map[string]int{}
	for _, o := range l {
		kind, b := body(o)
		if kind == "set" {
			b = setBody(b, leases)
		}
		if kind == "counter" {
			b = map[string]any{"name": b["name"]} // without its counts
		}
		clean := strip(b)
		prefix := kind
		if kind == "rule" {
			chain := fmt.Sprint(b["chain"])
			place[chain]++
			prefix = fmt.Sprintf("rule %s %03d", chain, place[chain])
		}
		text, err := json.Marshal(clean) // map keys are sorted
		if err != nil {
			panic(err) // never fails: it was decoded from JSON
		}
		lines = append(lines, prefix+" "+string(text))
	}
	slices.Sort(lines)
	return lines
}

// setBody returns a set without the elements that come and go: those that the kernel adds and, unless leases are to be
// compared, those of the egress sets.
func setBody(b map[string]any, leases bool) map[string]any {
	out := map[string]any{}
	for k, v := range b {
		out[k] = v
	}
	name := fmt.Sprint(b["name"])
	_, egress := egressSets[name]
	switch {
	case strings.HasSuffix(name, "_seen4"), !leases && egress:
		delete(out, "elem")
	case b["elem"] != nil:
		elems, _ := b["elem"].([]any)
		texts := make([]string, len(elems))
		for i, e := range elems {
			t, _ := json.Marshal(strip(e))
			texts[i] = string(t)
		}
		slices.Sort(texts)
		out["elem"] = strings.Join(texts, " ")
	}
	return out
}

// strip removes handles and counts at every depth.
func strip(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			switch _, counts := x.(map[string]any); {
			case k == "handle":
			case k == "counter" && counts:
				out[k] = nil
			default:
				out[k] = strip(x)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = strip(x)
		}
		return out
	}
	return v
}

// difference describes how l differs from want, or returns "".
func (l listing) difference(want listing) string {
	have, should := l.canonical(true), want.canonical(true)
	if len(have) == 0 && len(should) > 0 {
		return "the table is missing"
	}
	for _, s := range should {
		if !slices.Contains(have, s) {
			return "missing " + s
		}
	}
	for _, h := range have {
		if !slices.Contains(should, h) {
			return "not ours: " + h
		}
	}
	return ""
}

// equal compares with or without the leases in the egress sets.
func (l listing) equal(want listing, leases bool) bool {
	return slices.Equal(l.canonical(leases), want.canonical(leases))
}

// elements lists the elements of an egress set.
func (l listing) elements(set string) []netip.Addr {
	var out []netip.Addr
	for a := range l.counted(set) {
		out = append(out, a)
	}
	return out
}

func (l listing) flows() map[netip.Addr]Traffic {
	out := map[netip.Addr]Traffic{}
	note := func(set string, f func(*Traffic, count)) {
		for a, n := range l.counted(set) {
			t := out[a]
			f(&t, n)
			out[a] = t
		}
	}
	opened := func(t *Traffic, n count) { t.Opened += n.packets }
	note("full4", opened)
	note("limited4", opened)
	note("refused4", func(t *Traffic, n count) { t.Refused = n.packets })
	note("up4", func(t *Traffic, n count) { t.Up = n.bytes })
	note("down4", func(t *Traffic, n count) { t.Down = n.bytes })
	return out
}

// count is the number of successful lookups in a set.
type count struct{ packets, bytes uint64 }

// counted reads an egress set with its counts.
func (l listing) counted(set string) map[netip.Addr]count {
	out := map[netip.Addr]count{}
	for _, o := range l {
		kind, b := body(o)
		if kind != "set" || b["name"] != set {
			continue
		}
		elems, _ := b["elem"].([]any)
		for _, e := range elems {
			if a, n, ok := element(e); ok {
				out[a] = n
			}
		}
	}
	return out
}

func element(e any) (a netip.Addr, n count, ok bool) {
	val, _ := e.(string)
	if m, is := e.(map[string]any); is {
		inner, _ := m["elem"].(map[string]any)
		val, _ = inner["val"].(string)
		counter, _ := inner["counter"].(map[string]any)
		packets, _ := counter["packets"].(float64)
		bytes, _ := counter["bytes"].(float64)
		n = count{uint64(packets), uint64(bytes)}
	}
	a, err := netip.ParseAddr(val)
	return a, n, err == nil
}
