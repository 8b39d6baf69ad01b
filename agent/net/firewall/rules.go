package firewall

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/template"
)

// denied lists the networks that no container may reach: all that are not public, and metadata services at public
// addresses (Azure's 168.63.129.16; Alibaba's 100.100.100.200 and Oracle's 192.0.0.192 are in the ranges).
var denied = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3",
}

// UDP port 4791 is RoCE v2: network cards that speak it take such a packet from anyone who guesses a few numbers, past
// their hosts' firewalls, and read and write their programs' memory as it says.
//
// The rates are new connections per second of one lease. Traffic may leave from a home address: full suffices for
// parallel downloads but not for scans; limited suffices for a package index. Sets whose names end in "_seen4" hold,
// for each address, how much of a limit it has used: the kernel fills them.
var table = template.Must(template.New("").Parse(`table inet {{.Table}} {
	set deny4 {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { {{.Denied}} }
	}{{range .Sets}}
	set {{.Name}} {
		type ipv4_addr{{if .Counted}}
		counter{{end}}{{with .Leases}}
		elements = { {{.}} }{{end}}
	}{{end}}{{range .Bounds}}
	set {{.}}_seen4 {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 1m
	}{{end}}{{if .Connections}}
	set full_open_seen4 {
		type ipv4_addr
		size 65535
		flags dynamic
	}
	set limited_open_seen4 {
		type ipv4_addr
		size 65535
		flags dynamic
	}{{end}}
	chain input {
		type filter hook input priority filter - 10; policy accept;
		iifname "{{.Bridge}}" ct state established,related accept
		iifname "{{.Bridge}}" drop
	}
	chain forward {
		type filter hook forward priority filter - 10; policy accept;
		iifname "{{.Bridge}}" oifname "{{.Bridge}}" drop
		iifname "{{.Bridge}}" ip saddr @up4
		oifname "{{.Bridge}}" ip daddr @down4
		iifname "{{.Bridge}}" ip saddr @slow4 add @limited_up_seen4 { ip saddr limit rate over {{.LimitedUp}} } drop
		oifname "{{.Bridge}}" ip daddr @slow4 add @limited_down_seen4 { ip daddr limit rate over {{.LimitedDown}} } drop{{with .Up}}
		iifname "{{$.Bridge}}" add @up_seen4 { ip saddr limit rate over {{.}} } drop{{end}}{{with .Down}}
		oifname "{{$.Bridge}}" add @down_seen4 { ip daddr limit rate over {{.}} } drop{{end}}
		iifname "{{.Bridge}}" ct state established,related accept
		iifname "{{.Bridge}}" meta nfproto ipv6 drop
		iifname "{{.Bridge}}" ct state invalid drop
		iifname "{{.Bridge}}" ip daddr @deny4 goto refused
		iifname "{{.Bridge}}" tcp dport { 25, 465, 587 } goto refused
		iifname "{{.Bridge}}" udp dport 4791 goto refused
		iifname "{{.Bridge}}" ip saddr @full4 goto full
		iifname "{{.Bridge}}" ip saddr @limited4 goto limited
		iifname "{{.Bridge}}" goto refused
		oifname "{{.Bridge}}" ct state new drop
	}
	chain full {
		add @full_rate_seen4 { ip saddr limit rate over 200/second burst 1000 packets } drop{{if .Connections}}
		add @full_open_seen4 { ip saddr ct count over {{.FullOpen}} } reject with icmp admin-prohibited{{end}}
		accept
	}
	chain limited {
		add @limited_rate_seen4 { ip saddr limit rate over 20/second burst 100 packets } drop
		tcp dport { 53, 80, 443 } goto limited_open
		udp dport { 53, 443 } goto limited_open
		goto refused
	}
	chain limited_open {{"{"}}{{if .Connections}}
		add @limited_open_seen4 { ip saddr ct count over {{.LimitedOpen}} } reject with icmp admin-prohibited{{end}}
		accept
	}
	chain refused {
		ip saddr @refused4
		tcp dport { 25, 465, 587 } reject with tcp reset
		reject with icmp admin-prohibited
	}
}
`))

// rate formats a limit for nft: so much per second, with a burst of one second's worth.
func rate(mbps int) string { return fmt.Sprintf("%d kbytes/second", mbps*125) }

func lower(cap, own int) int {
	if cap == 0 {
		return own
	}
	return min(cap, own)
}

// render returns the table of cfg in nft's syntax for a host that is in the networks near. With connections false, open
// connections are not counted, for kernels that cannot count them.
func render(cfg Config, near []netip.Prefix, connections bool) string {
	deny := slices.Clone(denied)
	for _, p := range near {
		deny = append(deny, p.String())
	}
	type set struct {
		Name, Leases string
		Counted      bool
	}
	data := struct {
		Table, Bridge, Denied            string
		Sets                             []set
		Bounds                           []string
		LimitedUp, LimitedDown, Up, Down string
		Connections                      bool
		FullOpen, LimitedOpen            int
	}{Table: cfg.Table(), Bridge: cfg.Bridge(), Denied: strings.Join(deny, ", "), Connections: connections,
		Bounds:    []string{"full_rate", "limited_rate", "limited_up", "limited_down"},
		LimitedUp: rate(lower(cfg.Caps.UpMbps, LimitedUpMbps)), LimitedDown: rate(lower(cfg.Caps.DownMbps, LimitedDownMbps)),
		FullOpen: lower(cfg.Caps.Connections, FullConnections), LimitedOpen: lower(cfg.Caps.Connections, LimitedConnections)}
	for _, name := range slices.Sorted(maps.Keys(egressSets)) {
		data.Sets = append(data.Sets, set{name, cfg.join(egressSets[name]), name != "slow4"})
	}
	if cfg.Caps.UpMbps > 0 {
		data.Up, data.Bounds = rate(cfg.Caps.UpMbps), append(data.Bounds, "up")
	}
	if cfg.Caps.DownMbps > 0 {
		data.Down, data.Bounds = rate(cfg.Caps.DownMbps), append(data.Bounds, "down")
	}
	var b strings.Builder
	if err := table.Execute(&b, data); err != nil {
		panic(err) // cannot fail: template and data are both defined here
	}
	return b.String()
}

// replaced returns text that replaces whatever table of this name exists, in one transaction.
func replaced(name, text string) string {
	return fmt.Sprintf("add table inet %s\ndelete table inet %s\n%s", name, name, text)
}

// egressSets hold the addresses of leases, each set those of some egresses. All but slow4 count successful lookups; up4
// and down4 see every packet, full4 and limited4 the packets that open a connection.
var egressSets = map[string][]Egress{
	"full4":    {EgressFull},
	"limited4": {EgressLimited},
	"slow4":    {EgressLimited},
	"up4":      {EgressFull, EgressLimited},
	"down4":    {EgressFull, EgressLimited},
	"refused4": {EgressOff, EgressFull, EgressLimited},
}

// members lists the leases that belong into a set.
func (c Config) members(of []Egress) []netip.Addr {
	var out []netip.Addr
	for a, e := range c.Leases {
		if slices.Contains(of, e) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (c Config) join(of []Egress) string {
	var out []string
	for _, a := range c.members(of) {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}

// moves changes the egress sets from what have lists to cfg's, keeping the elements that stay, and their counters.
func moves(cfg Config, have listing) string {
	var b strings.Builder
	for set, egresses := range egressSets {
		listed, want := have.elements(set), cfg.members(egresses)
		for _, a := range listed {
			if !slices.Contains(want, a) {
				fmt.Fprintf(&b, "delete element inet %s %s { %s }\n", cfg.Table(), set, a)
			}
		}
		for _, a := range want {
			if !slices.Contains(listed, a) {
				fmt.Fprintf(&b, "add element inet %s %s { %s }\n", cfg.Table(), set, a)
			}
		}
	}
	return b.String()
}
