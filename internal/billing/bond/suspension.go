package bond

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Suspension is time of a cluster that its renter did not pay for, and why.
type Suspension client.Suspension

// Evidence is one fact that a suspension rests on.
type Evidence = client.Evidence

// Millis returns how long the suspension lasted.
func (s Suspension) Millis() int64 { return s.To.Sub(s.From).Milliseconds() }

// Cause returns why the time is not billed, as the end of a sentence such as "30.0 s not billed: rank 1 was cut off".
// names adds details about ranks, such as "host lisbon-3"; it may be nil.
func (s Suspension) Cause(names map[int]string) string {
	switch {
	case s.Class == "platform":
		return "Muster lost contact with the hosts; no host is to blame"
	case s.Class == "undecided":
		return s.disputed() + " lost contact with each other; no host is to blame"
	case s.Class == "silence" && len(s.Culprits) == 1:
		return ranks(s.Culprits, names) + " was cut off"
	case s.Class == "silence":
		return ranks(s.Culprits, names) + " were cut off"
	case len(s.Culprits) == 1:
		return ranks(s.Culprits, names) + " was not proven up"
	}
	return ranks(s.Culprits, names) + " were not proven up"
}

// explain is Cause with the evidence against each culprit.
func (s Suspension) explain(names map[int]string) string {
	out := s.Cause(names)
	if len(s.Culprits) == 0 {
		return capital(out) + "."
	}
	var why []string
	for _, k := range s.Culprits {
		of := "its"
		if len(s.Culprits) > 1 {
			of = fmt.Sprintf("rank %d's", k)
		}
		peers := map[int]bool{}
		said := map[string]bool{}
		for _, e := range s.Evidence {
			span := clock(e.From) + "–" + clock(e.To) + " UTC"
			text := ""
			switch {
			case e.Kind == "did_not_hear" && e.Rank == k && e.Peer != nil:
				peers[*e.Peer] = true
			case e.Kind == "did_not_hear" && e.Peer != nil && *e.Peer == k:
				peers[e.Rank] = true
			case e.Rank != k:
			case e.Kind == "late_reports":
				text = of + " reports of " + span + " came late"
			case e.Kind == "missing_reports":
				text = of + " reports of " + span + " are missing"
			case e.Kind == "not_well":
				text = of + " host reported that it was unhealthy, " + span
			}
			if text != "" && !said[text] {
				said[text] = true
				why = append(why, text)
			}
		}
		if n := len(peers); n > 0 {
			why = append(why, fmt.Sprintf("rank %d and %s lost contact with each other", k, count(n)))
		}
	}
	if len(why) > 0 {
		out += ": " + list(why)
	}
	return capital(out) + "."
}

// disputed names the ranks that received nothing from each other.
func (s Suspension) disputed() string {
	var in []int
	for _, e := range s.Evidence {
		if e.Kind == "did_not_hear" && e.Peer != nil {
			in = append(in, e.Rank, *e.Peer)
		}
	}
	slices.Sort(in)
	in = slices.Compact(in)
	if len(in) < 2 {
		return "ranks"
	}
	return ranks(in, nil)
}

// ranks returns "rank 1 (host lisbon-3)" or "ranks 0, 2 and 3".
func ranks(rs []int, names map[int]string) string {
	words := make([]string, len(rs))
	for i, r := range rs {
		words[i] = fmt.Sprint(r)
		if names[r] != "" {
			words[i] += " (" + names[r] + ")"
		}
	}
	if len(rs) == 1 {
		return "rank " + words[0]
	}
	return "ranks " + list(words)
}

// list returns "a", "a and b" or "a, b and c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

func count(n int) string {
	if n == 1 {
		return "another rank"
	}
	return fmt.Sprintf("%d other ranks", n)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// Suspended returns the decided suspensions of clusters, in order of time. The caller has checked that they may be
// seen. names adds details about the ranks of a cluster in Why; it may be nil.
func Suspended(ctx context.Context, q *dbq.Queries, clusters []id.Cluster,
	names func(id.Cluster) map[int]string) (map[id.Cluster][]Suspension, error) {
	out := map[id.Cluster][]Suspension{}
	if len(clusters) == 0 {
		return out, nil
	}
	ids := make([]pgtype.UUID, len(clusters))
	for i, c := range clusters {
		ids[i] = pgtype.UUID{Bytes: c.UUID(), Valid: true}
	}
	rows, err := q.SuspensionsOf(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read suspensions: %w", err)
	}
	if len(rows) == 0 {
		return out, nil
	}
	evidence, err := q.EvidenceOf(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read evidence of suspensions: %w", err)
	}
	type key struct {
		cluster id.Cluster
		n       int32
	}
	of := map[key][]Evidence{}
	for _, e := range evidence {
		x := Evidence{Kind: e.Kind, Rank: int(e.Rank), From: time.UnixMilli(e.FromMs).UTC(), To: time.UnixMilli(e.ToMs).UTC()}
		if e.Peer >= 0 {
			peer := int(e.Peer)
			x.Peer = &peer
		}
		of[key{e.ClusterID, e.N}] = append(of[key{e.ClusterID, e.N}], x)
	}
	for _, r := range rows {
		s := Suspension{
			From:     time.UnixMilli(r.FromMs).UTC(),
			To:       time.UnixMilli(r.ToMs).UTC(),
			Class:    r.Class,
			Culprits: []int{},
			Evidence: []Evidence{},
		}
		s.Evidence = append(s.Evidence, of[key{r.ClusterID, r.N}]...)
		for _, k := range r.Ranks {
			s.Culprits = append(s.Culprits, int(k))
		}
		var of map[int]string
		if names != nil {
			of = names(r.ClusterID)
		}
		s.Why = s.explain(of)
		out[r.ClusterID] = append(out[r.ClusterID], s)
	}
	return out, nil
}

// HostNames names the hosts of clusters' ranks, for Suspended: an operator's own as "your host NAME" and no others, or
// for the zero org all as "host NAME".
func HostNames(ctx context.Context, q *dbq.Queries, org id.Org,
	clusters []id.Cluster) (func(id.Cluster) map[int]string, error) {
	ids := make([]pgtype.UUID, len(clusters))
	for i, c := range clusters {
		ids[i] = pgtype.UUID{Bytes: c.UUID(), Valid: true}
	}
	rows, err := q.RanksOf(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read ranks: %w", err)
	}
	out := map[id.Cluster]map[int]string{}
	for _, r := range rows {
		if out[r.ClusterID] == nil {
			out[r.ClusterID] = map[int]string{}
		}
		switch {
		case org.IsZero():
			out[r.ClusterID][int(r.Rank)] = "host " + r.HostName
		case r.HostOrgID == org:
			out[r.ClusterID][int(r.Rank)] = "your host " + r.HostName
		}
	}
	return func(c id.Cluster) map[int]string { return out[c] }, nil
}

// Suspensions returns the decided suspensions of a gang in which the caller's organisation has or had a host, in order
// of time. Fault: NotFound for another cluster.
func (b *Bonds) Suspensions(ctx context.Context, who account.Principal, cluster id.Cluster) ([]Suspension, error) {
	q, org := b.d.Q, who.Org
	leases, err := OfCluster(ctx, q, cluster)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(leases, func(l Frozen) bool { return l.Operator == org }) {
		return nil, fault.New(fault.NotFound, "no gang with a host of yours has this id")
	}
	names, err := HostNames(ctx, q, org, []id.Cluster{cluster})
	if err != nil {
		return nil, err
	}
	all, err := Suspended(ctx, q, []id.Cluster{cluster}, names)
	return append([]Suspension{}, all[cluster]...), err
}
