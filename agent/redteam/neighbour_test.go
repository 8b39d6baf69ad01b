package redteam

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/internal/agentapi"
)

// overlayRange is every cluster's.
const overlayRange = "10.77.0.0/20"

func overlayAddress(rank int) string { return fmt.Sprintf("10.77.0.%d", rank+1) }

// member is a rank whose overlay is to stand.
type member struct {
	Ref   agentapi.LeaseRef
	Dir   string
	NetNS string // on the box
	Rank  int
}

// join starts the overlays of clusters on the box and gives each its own peers. They outlive it, as they outlive an
// agent.
func join(clusters [][]member) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, c := range clusters {
		handles, peers := make([]*overlay.Handle, len(c)), make([]agentapi.Peer, len(c))
		for i, m := range c {
			h, err := overlay.Ensure(ctx, overlay.Config{
				Dir:     m.Dir,
				Ref:     m.Ref,
				NetNS:   m.NetNS,
				Address: overlayAddress(m.Rank),
				CIDR:    overlayRange,
			})
			if err != nil {
				return err
			}
			handles[i] = h
			peers[i] = agentapi.Peer{Rank: m.Rank, Address: overlayAddress(m.Rank), Key: h.PublicKey(), Endpoints: h.Endpoints()}
		}
		for i, h := range handles {
			others := append(append([]agentapi.Peer{}, peers[:i]...), peers[i+1:]...)
			if err := h.SetPeers(ctx, others); err != nil {
				return err
			}
		}
	}
	return nil
}

// overlays has the box join clusters of nodes, each in the order of its ranks.
func (b *box) overlays(t *testing.T, clusters ...[]*node) {
	t.Helper()
	var all [][]member
	for _, c := range clusters {
		var members []member
		for rank, n := range c {
			if err := os.MkdirAll(leasefiles.At(n.dir).Overlay, 0o700); err != nil {
				t.Fatal(err)
			}
			members = append(members, member{n.guest.Ref, n.dir, n.guest.NetNS(), rank})
		}
		all = append(all, members)
	}
	arg, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := b.host.Command(t.Context(), self, "join", string(arg))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		logs, _ := filepath.Glob(filepath.Join(b.host.Dir(), "*", "overlay", "log"))
		for _, l := range logs {
			text, _ := os.ReadFile(l)
			said.Write(text)
		}
		t.Fatalf("the overlays do not stand: %v\n%s", err, &said)
	}
}

// output waits until a node's log has a line that matches.
func (n *node) output(t *testing.T, line string) {
	t.Helper()
	want := regexp.MustCompile("(?m)" + line)
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		log := n.box.docker.Do("logs", n.work.ID)
		if want.MatchString(log) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the node does not say %q:\n%s", line, log)
		}
	}
}

// neighbourCluster is two clusters of two tenants on one box, with the same range of overlay addresses. A program in
// one looks for the other in every way there is and finds nothing, and the other receives nothing from it.
func (b *box) neighbourCluster(t *testing.T) {
	const secret = "mst-redteam-secret"
	mate := b.run(firewall.EgressFull, 64, "node", "mate", secret)
	victims := []*node{b.run(firewall.EgressFull, 64, "node", "victim 0", secret, overlayAddress(1)),
		b.run(firewall.EgressFull, 64, "node", "victim 1", secret)}
	bridge := netip.PrefixFrom(victims[0].guest.IP, 24).Masked()
	scanner := b.run(firewall.EgressFull, 64, "scan", secret, overlayAddress(1), overlayRange, bridge.String(),
		victims[0].guest.IP.String())
	b.overlays(t, victims, []*node{scanner, mate})

	// The victims are there: each answers the host, and one the other over their overlay.
	gateway := bridge.Addr().Next()
	for _, v := range victims {
		b.there(t, v.guest.IP.String()+":9000")
		v.output(t, `^visited by `+regexp.QuoteMeta(gateway.String())+`:`)
	}
	victims[0].output(t, `^mate is victim 1$`)
	scanner.held(t, 14)
	for _, v := range append(victims, mate) {
		log := b.docker.Do("logs", v.work.ID)
		for _, line := range strings.Split(log, "\n") {
			if strings.HasPrefix(line, "visited by ") && !strings.HasPrefix(line, "visited by "+gateway.String()+":") &&
				!strings.HasSuffix(line, " who says victim 0") && (v != mate || !strings.HasSuffix(line, " who says attacker")) {
				t.Errorf("BREACH a neighbour received: %s", line)
			}
		}
		if strings.Contains(log, "BREACH") {
			t.Errorf("a neighbour says:\n%s", log)
		}
	}
}
