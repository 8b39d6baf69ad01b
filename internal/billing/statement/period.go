package statement

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Period is a statement over some days. Its lines are exact: those of one day after another add up to what was charged.
type Period client.Statement

// PeriodGroup is the sum of the lines that have something in common.
type PeriodGroup = client.StatementGroup

// PeriodLine is one lease at one price on one day. A segment counts to the day on which it begins.
type PeriodLine = client.StatementLine

// PeriodLease explains one lease: its frozen terms, and the time of its whole life that was not billed.
type PeriodLease = client.StatementLease

// PeriodPrice is a frozen price and what it is made of.
type PeriodPrice = client.StatementPrice

// Statement returns the org's statement from one day to another, both included, YYYY-MM-DD in its zone; "" is the first
// of this month, and today. by must be cluster, day, project, person, lease or label:KEY. Faults: Invalid, TooLarge.
func (s *Statements) Statement(ctx context.Context, org id.Org, from, to, by string) (Period, error) {
	d, err := s.daysOf(ctx, org, from, to)
	if err != nil {
		return Period{}, err
	}
	p := periodSum{Period: Period{
		From:     d.from,
		To:       d.to,
		Zone:     d.zone.String(),
		Currency: s.currency,
		By:       cmp.Or(by, "cluster"),
		Groups:   []PeriodGroup{},
		Lines:    []PeriodLine{},
		Storage:  []PeriodStorage{},
		Leases:   []PeriodLease{},
	}}
	label, isLabel := strings.CutPrefix(p.By, "label:")
	if !isLabel && !slices.Contains([]string{"cluster", "day", "project", "person", "lease"}, p.By) {
		return Period{}, fault.InvalidField("query.by", "must be cluster, day, project, person, lease or label:KEY")
	}
	leases, err := metering.RenterStatement(ctx, s.d.Q, org, d.first, d.end)
	if err != nil {
		return Period{}, err
	}
	if err := p.fill(ctx, s.d.Q, leases, d); err != nil {
		return Period{}, err
	}
	if err := p.store(ctx, s.d.Q, org, d); err != nil {
		return Period{}, err
	}
	p.group(label)
	if p.Credits, p.Credited, err = creditsOf(ctx, s.d.Q, org, s.currency, d.first, d.end); err != nil {
		return Period{}, err
	}
	p.Net = p.Total - p.Credited
	if p.NotBilled, err = notBilledOf(ctx, s.d.Q, leases, d.first, d.end); err != nil {
		return Period{}, err
	}
	return p.Period, nil
}

// periodSum is a statement that is being added up, with what its texts are made of.
type periodSum struct {
	Period
	energy []int64    // of each line, mJ
	stored []*big.Int // of each line of storage, bytes × microseconds
}

// fill adds the lines of leases, and the leases that have any or still live.
func (p *periodSum) fill(ctx context.Context, q *dbq.Queries, leases []metering.LeaseStatement, d days) error {
	names, err := clusterNames(ctx, q, leases)
	if err != nil {
		return err
	}
	var lines []metering.UsageLine
	for _, l := range leases {
		lines = append(lines, l.Lines...)
	}
	hosts, err := hostNames(ctx, q, lines)
	if err != nil {
		return err
	}
	var energy int64
	for _, l := range leases {
		c, used := names[l.Cluster], d.usage(l)
		for _, u := range used {
			p.Lines = append(p.Lines, PeriodLine{
				Day:          u.day,
				Cluster:      l.Cluster,
				ClusterName:  c.name,
				Project:      c.project,
				Person:       c.person,
				Labels:       c.labels,
				Lease:        l.Lease,
				Rank:         l.Rank,
				HostID:       l.Host,
				HostName:     hosts[l.Host],
				GPUModel:     l.GPUModel,
				GPUs:         l.GPUs,
				Seconds:      u.seconds,
				PricePerHour: u.rate,
				Cost:         u.cost,
				EnergyWh:     wattHours(u.energy),
			})
			p.energy = append(p.energy, u.energy)
			p.Total, energy = p.Total+u.cost, energy+u.energy
		}
		if len(used) > 0 || l.Until == nil {
			p.Leases = append(p.Leases, periodLease(l))
		}
	}
	p.EnergyWh = wattHours(energy)
	return nil
}

// periodLease returns a lease's terms, and the time of its life that was not billed.
func periodLease(l metering.LeaseStatement) PeriodLease {
	out := PeriodLease{
		Lease:           l.Lease,
		Cluster:         l.Cluster,
		Rank:            l.Rank,
		StartedAt:       l.From,
		EndedAt:         l.Until,
		Settled:         l.Settled,
		OutsideSeconds:  Seconds(l.OutsideMS),
		UnprovenSeconds: Seconds(l.UnprovenMS),
	}
	for _, f := range l.Prices {
		price := PeriodPrice{PricePerHour: f.Rate, Items: f.Items}
		if !f.From.IsZero() {
			price.From = &f.From
		}
		out.Prices = append(out.Prices, price)
	}
	return out
}

type clusterName struct {
	name, project, person string
	labels                map[string]string
}

func clusterNames(ctx context.Context, q *dbq.Queries,
	leases []metering.LeaseStatement) (map[id.Cluster]clusterName, error) {
	var ids []pgtype.UUID
	for _, l := range leases {
		if c := (pgtype.UUID{Bytes: l.Cluster.UUID(), Valid: true}); !slices.Contains(ids, c) {
			ids = append(ids, c)
		}
	}
	rows, err := q.ClusterNames(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read names of clusters: %w", err)
	}
	out := make(map[id.Cluster]clusterName, len(rows))
	for _, r := range rows {
		c := clusterName{name: r.Name, project: r.Project, person: r.Person}
		if err := json.Unmarshal(r.Labels, &c.labels); err != nil {
			return nil, fmt.Errorf("read labels of %s: %w", r.ID, err)
		}
		out[r.ID] = c
	}
	return out, nil
}

// group sums the lines by p.By; by the value of a label if that is a label.
func (p *periodSum) group(label string) {
	at := map[string]int{}
	var energy []int64 // of each group
	for n, l := range p.Lines {
		var key, name string
		switch p.By {
		case "cluster":
			key, name = l.Cluster.String(), l.ClusterName
		case "day":
			key, name = l.Day, l.Day
		case "project":
			key, name = l.Project, cmp.Or(l.Project, "no project")
		case "person":
			key, name = l.Person, cmp.Or(l.Person, "a deleted account")
		case "lease":
			key, name = l.Lease.String(), fmt.Sprintf("%s, rank %d", l.ClusterName, l.Rank)
		default:
			key = l.Labels[label]
			name = cmp.Or(key, "without "+label)
		}
		i, ok := at[key]
		if !ok {
			i = len(p.Groups)
			at[key] = i
			p.Groups, energy = append(p.Groups, PeriodGroup{Key: key, Name: name}), append(energy, 0)
		}
		g := &p.Groups[i]
		g.Seconds, g.Cost, energy[i] = g.Seconds+l.Seconds, g.Cost+l.Cost, energy[i]+p.energy[n]
		g.EnergyWh = wattHours(energy[i])
	}
	p.groupStorage()
	if p.By == "day" {
		slices.SortFunc(p.Groups, func(a, b PeriodGroup) int { return strings.Compare(a.Key, b.Key) })
	}
}

// CSV writes the lines as a table with a heading. Texts that a spreadsheet would compute are set off by an apostrophe.
func (p Period) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"day", "cluster_id", "cluster", "project", "lease_id", "rank", "host", "gpu_model", "gpus",
		"seconds",
		"price_per_hour_" + p.Currency, "cost_" + p.Currency, "energy_wh", "volume", "gb_hours"}}
	for _, l := range p.Lines {
		rows = append(rows, []string{l.Day, l.Cluster.String(), plain(l.ClusterName), plain(l.Project), l.Lease.String(),
			fmt.Sprint(l.Rank),
			plain(l.HostName), plain(l.GPUModel), fmt.Sprint(l.GPUs), l.Seconds.String(), l.PricePerHour.String(),
			l.Cost.String(), l.EnergyWh, "", ""})
	}
	for _, l := range p.Storage {
		rows = append(rows, []string{l.Day, "", "", "", "", "", "", "", "", "", "", l.Cost.String(), "", plain(l.Volume),
			l.GBHours})
	}
	return out.WriteAll(rows)
}

func plain(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
