package hostlink_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/serve/hostlink"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

// hostileTexts are parts of texts, as JSON: a renter may write them, and an image, a store or a driver may answer them.
var hostileTexts = []string{`x`, `\\u0000`, `\\ud800`, `\ud800`, `\u2028\u2029`, `<&>`, `\u0001`, `\"\\`, `é`, `😀`, "\xff"}

// sold is a host with all its GPUs on the market, connected to a replica with the real packages.
type sold struct {
	*fleettest.World
	*agent
	link     *hostlink.Link
	clusters *cluster.Clusters
	seq      uint64
	booted   time.Time // a report that was made before its lease began would not count
	bootMS   int64     // of the last report
	revision int64
}

func newSold(t *testing.T, gpus int) *sold {
	t.Helper()
	w := fleettest.New(t, dbtest.New(t))
	l, err := hostlink.Open(t.Context(), host.NewReplicas(w.DB), config())
	w.Must(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.Must(l.Stop(ctx))
	})
	m := markettest.New(w, market.Config{Bus: l.Bus()})
	h := &sold{World: w, link: l, clusters: cluster.New(w.DB, m, l.Bus(), cluster.Config{
		Currency: fleettest.Currency, Box: w.Box(), MaxState: l.StateLimit(),
	})}
	w.Must(l.Start(hostlink.Domain{
		Agents: host.NewAgents(w.DB, l.Bus()), Clusters: h.clusters.Hosts, Metering: metering.NewCollector(w.DB), Market: m,
		Quiet: cluster.NewQuietReports(h.clusters.Hosts),
	}))
	operator := w.SignUp("operator")
	h.agent = &agent{Agent: fleettest.Enroll(t, w.DB, operator.Org, operator.User, gpus), t: t,
		instance: uuid.NewString()}
	w.Must(h.connect(l))
	h.booted = time.Now().Add(-time.Second)
	h.report()
	markettest.Price(w, m, operator, h.Host, 1_000_000)
	return h
}

// report sends a full report with leases in JSON and takes the answer.
func (h *sold) report(leases ...string) agentapi.SyncReply {
	h.T.Helper()
	h.seq++
	h.bootMS = time.Since(h.booted).Milliseconds()
	var r agentapi.SyncReply
	h.request(agentapi.SubjectSync(h.Host.String()), wire(fmt.Sprintf(`{"protocol":%d,"boot_id":"boot","boot_ms":%d,
		"control_epoch":1,"full":true,"seq":%d,"revision":%d,"leases":[%s]}`, agentapi.Protocol, h.bootMS, h.seq,
		h.revision, strings.Join(leases, ","))), &r)
	if r.RetryMS > 0 { // the machine is busy
		<-time.After(time.Duration(r.RetryMS) * time.Millisecond)
		return h.report(leases...)
	}
	return r
}

func (h *sold) renter(name string) account.Principal {
	p := h.SignUp(name)
	h.Fund(p.Org, 1000*money.Unit)
	return p
}

// rent rents a spec of the REST API.
func (h *sold) rent(who account.Principal, spec string) (cluster.Cluster, error) {
	var s market.Spec
	if err := s.UnmarshalJSON([]byte(spec)); err != nil {
		return cluster.Cluster{}, err
	}
	c, _, err := h.clusters.Rentals.Rent(h.T.Context(), who, cluster.RentRequest{Spec: s}, idem.Request{})
	return c, err
}

func (h *sold) lease(c cluster.Cluster) (v id.Lease) {
	h.T.Helper()
	h.Must(h.DB.Pool.QueryRow(h.T.Context(), "SELECT lease_id FROM node WHERE cluster_id = $1", c.ID).Scan(&v))
	return v
}

// Whatever renters may write, and whatever images, stores and drivers answer, a neighbour on the host gets its start,
// its reports are stored and acknowledged, and its lease is extended; also with every GPU of the host rented with the
// largest spec that is accepted.
func TestLink_ServesTheNeighboursOfAnyLease(t *testing.T) {
	t.Parallel()
	const gpus = 16
	h := newSold(t, gpus)
	neighbour, err := h.rent(h.renter("neighbour"), `{"image":"example.com/good:1"}`)
	h.Must(err)
	loud := h.renter("loud")
	var leases []id.Lease
	for size, refused := 64<<10, 0; len(leases) < gpus-1; {
		part := hostileTexts[rand.IntN(len(hostileTexts))]
		spec := fmt.Sprintf(`{"image":"example.com/loud:1","command":["%s"],"env":{"A":"%s"}}`,
			part, strings.Repeat(part, size/len(part)))
		c, err := h.rent(loud, spec)
		if fault.Is(err, fault.Invalid) { // too large: the message names the size and the limit
			refused++
			why := fmt.Sprint(fault.From(err).Fields)
			if !strings.Contains(why, fmt.Sprint(agentapi.GPUBytes)) && !strings.Contains(why, "and 131072 bytes") {
				t.Fatalf("%.80s: %s", spec, why)
			}
			size = size * 9 / 10
			continue
		}
		h.Must(err)
		leases, size = append(leases, h.lease(c)), 64<<10
		if len(leases) == gpus-1 && refused == 0 {
			t.Error("nothing was too large")
		}
	}
	r := h.report()
	if r.Desired == nil || len(r.Desired.Leases) != gpus || r.Error != "" {
		t.Fatalf("the host gets %+v", r)
	}
	h.revision = r.Desired.Revision
	own := h.lease(neighbour)
	for range len(hostileTexts) {
		all := []string{fmt.Sprintf(`{"lease":%q,"epoch":1,"state":"starting","progress":{"step":"guest"}}`, own)}
		for _, v := range leases {
			text := `"` + strings.Repeat(hostileTexts[rand.IntN(len(hostileTexts))], 1+rand.IntN(200)) + `"`
			all = append(all, fmt.Sprintf(`{"lease":%q,"epoch":1,"state":"failed","reason":"command_not_found",
				"detail":%[2]s,"trouble":%[2]s,"trouble_detail":%[2]s,"leaving":%[2]s,"wg_key":%[2]s,"image_digest":%[2]s,
				"endpoints":[%[2]s],"progress":{"step":%[2]s,"waiting_for":%[2]s,"layers":[{"digest":%[2]s}],
				"uploads":{"problem":%[2]s}},"preflight":{"detail":%[2]s,"nccl":{"kind":%[2]s,"detail":%[2]s}},
				"paths":[{"path":%[2]s}],"not_uploaded":[{"name":%[2]s,"detail":%[2]s}]}`, v, text))
		}
		r := h.report(all...)
		var stored int64
		h.Must(h.DB.Pool.QueryRow(t.Context(), `SELECT s.boot_ms FROM node_status s JOIN node n ON n.id = s.node_id
			WHERE n.lease_id = $1`, own).Scan(&stored))
		extended := false
		for _, e := range r.Extensions {
			extended = extended || e.Lease == own.String()
		}
		if r.Error != "" || r.StatusAck != h.seq || !extended || stored != h.bootMS {
			t.Fatalf("the neighbour is not served: error %q, acknowledged %d of %d, extended %v, stored %d\n%.3000q",
				r.Error, r.StatusAck, h.seq, extended, stored, strings.Join(all, "\n"))
		}
		if r.Desired != nil {
			h.revision = r.Desired.Revision
		}
	}
	h.revision = 0
	if d := h.report().Desired; d == nil || len(d.Leases) != 1 || d.Leases[0].Lease != own.String() {
		t.Errorf("at the end the host gets %+v", d)
	}
}
