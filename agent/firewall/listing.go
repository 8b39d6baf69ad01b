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

	"github.com/musterhq/muster/agent/netns"
)

// A table is compared by what nft lists of it, not by its text: the same text is listed differently by different
// versions of nft and kernels. So the wanted text is loaded into an empty network namespace of a moment, listed there
// by the same nft and kernel, and that listing is compared with the host's. Any rule added, removed or changed by
// anybody shows, and nothing has to be known about how nft writes. Leases come and go without it: each is listed as the
// example of its set is, with another address.

// listing is nft's JSON objects of a table, without what is no part of the rules (handles, counts).
type listing []map[string]any

// meaning is how this machine lists text.
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

// list reads the table in the present thread's namespace; a table that is missing lists as nothing.
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

// nft runs on the calling thread, so in its network namespace.
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

// body is an object's kind and what it holds.
func body(o map[string]any) (kind string, b map[string]any) {
	for k, v := range o {
		m, _ := v.(map[string]any)
		return k, m
	}
	return "", nil
}

// canonical is one line per object, sorted but for rules, whose order within a chain matters.
func (l listing) canonical(leases bool) []string {
	var lines []string
	place := map[string]int{}
	for _, o := range l {
		kind, b := body(o)
		if kind == "set" {
			b = setBody(b, leases)
		}
		clean := strip(b)
		prefix := kind
		if kind == "rule" {
			chain := fmt.Sprint(b["chain"])
			place[chain]++
			prefix = fmt.Sprintf("rule %s %03d", chain, place[chain])
		}
		text, err := json.Marshal(clean) // map keys come out sorted
		if err != nil {
			panic(err) // it came out of JSON
		}
		lines = append(lines, prefix+" "+string(text))
	}
	slices.Sort(lines)
	return lines
}

// setBody is a set without elements that come and go: those the kernel fills always, of the egress sets unless leases
// are to be compared.
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

// difference says in words how l differs from want, "" when it does not.
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

// elements lists an egress set.
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

// count is what was looked up in a set and found.
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
