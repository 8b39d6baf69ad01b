package testnet

import "fmt"

// NAT is how a router maps its hosts to one public address.
type NAT string

const (
	// Preserving keeps a host's source port if it is free, for every destination, as most home routers do. Two hosts
	// behind such routers can connect by sending to each other at the same time.
	Preserving NAT = "preserving"
	// Symmetric uses another port for every destination: two hosts behind such routers cannot connect directly.
	Symmetric NAT = "symmetric"
	// None only routes.
	None NAT = "none"
)

// Router adds a machine between two segments, with the given addresses on each, that forwards and translates traffic
// from the inside. Like a home router it accepts nothing from the outside that was not requested from the inside. Set
// the default route of the inside hosts to its inside address.
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
