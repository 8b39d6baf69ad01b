package cli

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/agent/self/update"
	"github.com/musterhq/muster/internal/fault"
)

// portFlags are the flags for whose ports the doctor checks.
type portFlags struct{ url, ca, state string }

func (f *portFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.url, "url", "", "the platform's address for hosts, to see whether its ports are open from here "+
		"(default: where this host is enrolled)")
	fl.StringVar(&f.ca, "ca", "", "PEM file to verify --url with (default: the system's)")
	fl.StringVar(&f.state, "state", defaultState, "the agent's state directory")
}

// ports is what is known of this host's outgoing connections.
type ports struct {
	Skipped bool        // called by an agent, which itself knows whether its platform is reachable
	State   string      // where the host's identity was searched
	Reach   *link.Reach // nil: no platform was checked
	UDP     udpPorts
	UDPErr  error // from listening on any port
}

// udpPorts are the ports that the kernel assigns to a socket without a given port, as the networks of clusters use.
type udpPorts struct{ Low, High, Taken int }

// fewUDP is how many free ports are too few: each node of a cluster over several hosts takes one.
const fewUDP = 64

func (f portFlags) ports(ctx context.Context) (ports, error) {
	// The present state of the network must not count against a version of the agent on trial.
	p := ports{Skipped: os.Getenv(update.LaunchedEnv) != "" && f.url == "", State: f.state, UDP: readUDP("/proc")}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{})
	if p.UDPErr = err; err == nil {
		conn.Close()
	}
	if p.Skipped {
		return p, nil
	}
	cfg := link.ReachConfig{URL: f.url}
	known, err := link.Load(f.state)
	switch {
	case err == nil && (f.url == "" || f.url == known.Origin):
		cfg.Known, cfg.URL = known, known.Origin
	case err != nil && f.url == "" && (fault.Is(err, fault.NotFound) || os.Geteuid() != 0):
		return p, nil // another finding reports that the doctor does not run as root
	case err != nil && f.url == "":
		return p, err
	}
	if f.ca != "" {
		if cfg.CA, err = os.ReadFile(f.ca); err != nil {
			return p, err
		}
	} else if cfg.Known != nil && known.StreamCA != "" {
		cfg.CA = []byte(known.StreamCA) // of the same listener
	}
	reach, err := link.LookAround(ctx, cfg)
	p.Reach = &reach
	return p, err
}

// readUDP reads the ports from procfs; values that it cannot read are 0.
func readUDP(procfs string) (u udpPorts) {
	b, err := os.ReadFile(filepath.Join(procfs, "sys/net/ipv4/ip_local_port_range"))
	if err != nil {
		return u
	}
	if _, err := fmt.Sscan(string(b), &u.Low, &u.High); err != nil {
		return udpPorts{}
	}
	taken := map[int]bool{}
	for _, name := range []string{"net/udp", "net/udp6"} {
		b, err := os.ReadFile(filepath.Join(procfs, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) { // sl local_address …: 12: 0100007F:D431 …
			f := strings.Fields(line)
			if len(f) < 2 {
				continue
			}
			port, err := strconv.ParseUint(f[1][strings.LastIndexByte(f[1], ':')+1:], 16, 16)
			if n := int(port); err == nil && n >= u.Low && n <= u.High {
				taken[n] = true
			}
		}
	}
	u.Taken = len(taken)
	return u
}

// diagnose returns the findings on which ports are open, and which the operator must open.
func (p ports) diagnose() (out []finding) {
	say := func(check, state, cause, found, remedy string) {
		out = append(out, finding{check, state, cause, found, remedy})
	}
	p.udp(say)
	if p.Skipped {
		return out
	}
	r := p.Reach
	if r == nil {
		say("platform", "warn", "Whether the platform's ports are open from here was not looked at: no platform is named, "+
			"and none is found in "+p.State+".", "",
			"Name the platform: muster-agent doctor --url https://…")
		return out
	}
	if r.Platform.Err != nil {
		say("platform", "bad", "The platform is not reached from here: the host can neither enrol nor open shells and logs.",
			r.Platform.Address+": "+r.Platform.Err.Error(),
			"Open outbound "+portOf("TCP", r.Platform.Address)+" (HTTPS) in this network's firewall; see that the name "+
				"resolves, and that nothing in between opens TLS (a platform with a CA of its own: --ca FILE).")
	} else {
		say("platform", "ok", "The platform answers at "+r.Platform.Address+".", "", "")
	}
	good, found, open := tally(r.Link, "TCP")
	switch {
	case len(r.Link) == 0: // unknown: the platform is not reachable, or does not report it
	case good == 0:
		say("link", "bad", "The agent could not keep its connection to the platform: the host would be shown as away and "+
			"get no leases.", found,
			"Open outbound "+open+" in this network's firewall. It is TLS from end to end: a proxy that opens it breaks it.")
	case good < len(r.Link):
		say("link", "warn", "Of the platform's addresses for agents not all are reached: the others carry the connection.",
			found, "Open outbound "+open+" in this network's firewall.")
	default:
		say("link", "ok", "The agent's connection gets through to "+names(r.Link)+".", "", "")
	}
	good, found, open = tally(r.Relays, "UDP")
	switch {
	case r.Platform.Err != nil:
	case len(r.Relays) == 0 && !r.Known:
		say("relay", "ok", "The platform is of a version that does not name its relays: outbound UDP was not tried.", "", "")
	case len(r.Relays) == 0:
		say("relay", "ok", "The platform has no relay: outbound UDP was not tried.", "", "")
	case good == 0:
		say("relay", "warn", "No relay answers: UDP does not get out of this network, or its answers not in. Clusters "+
			"over several hosts would fail here, free of charge.", found,
			"Open outbound UDP to any address and port (hosts send to each other straight), at the least "+open+
				", with the answers to it.")
	case good < len(r.Relays):
		say("relay", "warn", "Not all relays answer; the others do, so UDP gets out.", found, "Open outbound "+open+
			"; if it is open, those relays are down.")
	default:
		say("relay", "ok", "UDP gets out, and its answers in: "+names(r.Relays)+".", "", "")
	}
	return out
}

// udp returns the finding on whether the networks of clusters have ports to listen on.
func (p ports) udp(say func(check, state, cause, found, remedy string)) {
	span := fmt.Sprintf("UDP %d to %d", p.UDP.Low, p.UDP.High)
	seen := fmt.Sprintf("%d of %s are taken", p.UDP.Taken, span)
	switch free := p.UDP.High - p.UDP.Low + 1 - p.UDP.Taken; {
	case p.UDPErr != nil:
		say("ports", "bad", "No UDP port can be listened on: clusters' networks cannot be made.", p.UDPErr.Error()+"; "+seen,
			"See with ss -lunp who holds them, or widen net.ipv4.ip_local_port_range.")
	case p.UDP.High == 0:
		say("ports", "ok", "UDP ports can be listened on.", "", "")
	case free < fewUDP:
		say("ports", "warn", "Few UDP ports are left for clusters' networks: each of their nodes listens on one.", seen,
			"See with ss -lunp who holds them, or widen net.ipv4.ip_local_port_range.")
	default:
		say("ports", "ok", fmt.Sprintf("Clusters' networks listen on free ports of %s, which a firewall that should let "+
			"other hosts in straight must leave open.", span), seen, "")
	}
}

// tally counts the addresses that answered, and names those that did not.
func tally(all []link.Reached, protocol string) (good int, found, open string) {
	var why, which []string
	for _, r := range all {
		if r.Err == nil {
			good++
			continue
		}
		why, which = append(why, r.Address+": "+r.Err.Error()), append(which, portOf(protocol, r.Address))
	}
	return good, strings.Join(why, "; "), strings.Join(which, ", ")
}

func names(all []link.Reached) string {
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = r.Address
	}
	return strings.Join(out, ", ")
}

// portOf returns which port of which machine an address is: "TCP 443 to agents.example".
func portOf(protocol, address string) string {
	host, port := address, ""
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		host, port = u.Hostname(), u.Port()
		if port == "" {
			port = map[string]string{"https": "443", "wss": "443", "http": "80"}[u.Scheme]
		}
		if port == "" {
			port = "4222" // NATS's own
		}
	} else if h, p, err := net.SplitHostPort(address); err == nil {
		host, port = h, p
	}
	return protocol + " " + port + " to " + host
}
