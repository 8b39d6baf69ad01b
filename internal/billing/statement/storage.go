package statement

import (
	"context"
	"math/big"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// PeriodStorage is what was charged on one day for what volumes store. A charge counts to the day on which it was
// posted: normally within an hour after the time that it is for, and later after a time without credit.
type PeriodStorage = client.StatementStorage

// store adds the lines of volumes to the period and its total.
func (p *periodSum) store(ctx context.Context, q *dbq.Queries, org id.Org, d days) error {
	posted, err := volume.PostedTo(ctx, q, org, p.Currency, firstID(d.first), d.first, d.end)
	if err != nil {
		return err
	}
	type key struct {
		day    string
		domain id.DataDomain
	}
	at := map[key]int{}
	for _, x := range posted {
		k := key{x.At.In(d.zone).Format(time.DateOnly), x.Domain}
		i, ok := at[k]
		if !ok {
			i = len(p.Storage)
			at[k] = i
			p.Storage = append(p.Storage, PeriodStorage{Day: k.day, Domain: x.Domain, Volume: x.Names})
			p.stored = append(p.stored, new(big.Int))
		}
		p.Storage[i].Cost += x.Amount
		p.stored[i].Add(p.stored[i], x.ByteMicros)
		p.Total += x.Amount
	}
	for i := range p.Storage {
		p.Storage[i].GBHours = volume.GBHours(p.stored[i])
	}
	return nil
}

// groupStorage adds the lines of volumes to the sums: to those of their days, or as a sum for each volume, since they
// belong to no cluster, project or person.
func (p *periodSum) groupStorage() {
	at := map[string]int{}
	if p.By == "day" {
		for i, g := range p.Groups {
			at[g.Key] = i
		}
	}
	stored := map[string]*big.Int{} // of each group
	for n, l := range p.Storage {
		key, name := l.Domain.String(), "Storage of "+l.Volume
		if p.By == "day" {
			key, name = l.Day, l.Day
		}
		i, ok := at[key]
		if !ok {
			i = len(p.Groups)
			at[key] = i
			p.Groups = append(p.Groups, PeriodGroup{Key: key, Name: name, EnergyWh: wattHours(0)})
		}
		if stored[key] == nil {
			stored[key] = new(big.Int)
		}
		stored[key].Add(stored[key], p.stored[n])
		g := &p.Groups[i]
		g.Cost += l.Cost
		g.GBHours = volume.GBHours(stored[key])
	}
}
