package testnet

import "fmt"

// NAT is how a router gives its hosts one public address.
type NAT string

const (
	// Preserving keeps the port a host sends from where it is free, whoever it sends to: what most home routers do.
	// Two hosts behind such routers can meet by sending to each other at once.
	Preserving NAT = "preserving"
	// Symmetric takes another port for every destination: two hosts behind such routers never meet by themselves.
	Symmetric NAT = "symmetric"
	// None only routes.
	None NAT = "none"
)

// Router makes a machine between two segments, with the given addresses on each, that forwards what comes from inside
// and translates it. It lets nothing in that nobody inside has asked for, as home routers do. Point the inside hosts'
// default route at its inside address.
func (n *Net) Router(name string, inside *Segment, insideAddress string, outside *Segment, outsideAddress string,
	kind NAT) *Host {
	n.t.Helper()
	h := n.Host(name)
	h.Join(inside, insideAddress)
	h.Join(outside, outsideAddress)
	h.Run("sysctl", "-qw", "net.ipv4.ip_forward=1")
	rules := `
		chain input { type filter hook input priority 0; policy accept;
			iifname "eth1" ct state new meta l4proto != icmp drop
		}
		chain forward { type filter hook forward priority 0; policy accept;
			iifname "eth1" ct state new drop
		}`
	switch kind {
	case Preserving:
		rules += "\nchain out { type nat hook postrouting priority 100; oifname \"eth1\" masquerade; }"
	case Symmetric:
		rules += "\nchain out { type nat hook postrouting priority 100; oifname \"eth1\" masquerade fully-random; }"
	case None:
		rules = ""
	}
	h.Run("nft", fmt.Sprintf("table ip router {%s\n}", rules))
	return h
}
