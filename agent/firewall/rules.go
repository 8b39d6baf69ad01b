package firewall

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/template"
)

// denied are the networks no container may reach: all that are not public, and the metadata services that hide on
// public addresses (Azure's 168.63.129.16; Alibaba's 100.100.100.200 and Oracle's 192.0.0.192 lie in the ranges).
var denied = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3",
}

// The rates are new connections per second of one lease. Traffic leaves from somebody's home address: full is enough
// for parallel downloads and not for scans; limited is enough for a package index.
var table = template.Must(template.New("").Parse(`table inet {{.Table}} {
	set deny4 {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { {{.Denied}} }
	}
	set full4 {
		type ipv4_addr
		counter{{with .Full}}
		elements = { {{.}} }{{end}}
	}
	set limited4 {
		type ipv4_addr
		counter{{with .Limited}}
		elements = { {{.}} }{{end}}
	}
	set full_rate4 {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 1m
	}
	set limited_rate4 {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 1m
	}
	chain input {
		type filter hook input priority filter - 10; policy accept;
		iifname "{{.Bridge}}" ct state established,related accept
		iifname "{{.Bridge}}" drop
	}
	chain forward {
		type filter hook forward priority filter - 10; policy accept;
		iifname "{{.Bridge}}" oifname "{{.Bridge}}" drop
		iifname "{{.Bridge}}" ct state established,related accept
		iifname "{{.Bridge}}" meta nfproto ipv6 drop
		iifname "{{.Bridge}}" ct state invalid drop
		iifname "{{.Bridge}}" ip daddr @deny4 reject with icmp admin-prohibited
		iifname "{{.Bridge}}" tcp dport { 25, 465, 587 } reject with tcp reset
		iifname "{{.Bridge}}" ip saddr @full4 goto full
		iifname "{{.Bridge}}" ip saddr @limited4 goto limited
		iifname "{{.Bridge}}" reject with icmp admin-prohibited
		oifname "{{.Bridge}}" ct state new drop
	}
	chain full {
		add @full_rate4 { ip saddr limit rate over 200/second burst 1000 packets } drop
		accept
	}
	chain limited {
		add @limited_rate4 { ip saddr limit rate over 20/second burst 100 packets } drop
		tcp dport { 53, 80, 443 } accept
		udp dport { 53, 443 } accept
		reject with icmp admin-prohibited
	}
}
`))

// render is the table of cfg, as nft reads it, on a host that is on the networks near.
func render(cfg Config, near []netip.Prefix) string {
	deny := slices.Clone(denied)
	for _, p := range near {
		deny = append(deny, p.String())
	}
	var b strings.Builder
	err := table.Execute(&b, map[string]string{
		"Table": cfg.Table(), "Bridge": cfg.Bridge(), "Denied": strings.Join(deny, ", "),
		"Full": cfg.join(EgressFull), "Limited": cfg.join(EgressLimited),
	})
	if err != nil {
		panic(err) // the template and its data are both above
	}
	return b.String()
}

// replacement is text loaded in the place of whatever was there, in one transaction.
func replacement(cfg Config, text string) string {
	return fmt.Sprintf("add table inet %s\ndelete table inet %s\n%s", cfg.Table(), cfg.Table(), text)
}

// egressSets hold the leases' addresses; one that is off is in none.
var egressSets = map[string]Egress{"full4": EgressFull, "limited4": EgressLimited}

// moves brings the egress sets from what have lists to cfg's, leaving the elements that stay, and their counters.
func moves(cfg Config, have listing) string {
	var b strings.Builder
	for set, egress := range egressSets {
		listed := have.elements(set)
		for _, a := range listed {
			if cfg.Leases[a] != egress {
				fmt.Fprintf(&b, "delete element inet %s %s { %s }\n", cfg.Table(), set, a)
			}
		}
		for a, e := range cfg.Leases {
			if e == egress && !slices.Contains(listed, a) {
				fmt.Fprintf(&b, "add element inet %s %s { %s }\n", cfg.Table(), set, a)
			}
		}
	}
	return b.String()
}

func (c Config) join(e Egress) string {
	var out []string
	for a, have := range c.Leases {
		if have == e {
			out = append(out, a.String())
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
