package bond

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

const (
	// mediansOver is how far back leases count towards the median price of a model.
	mediansOver = 7 * 24 * time.Hour
	// mediansOperators is how many operators must have rented out a model for it to have a median price.
	mediansOperators = 5
)

// Medians are the median prices of a GPU an hour, by model; models that few operators rented out have none.
type Medians map[string]money.Micro

// ReadMedians reads the median prices of the days before now.
func ReadMedians(ctx context.Context, q *dbq.Queries, currency string, now time.Time) (Medians, error) {
	var first uuid.UUID // before all ids made within that time
	binary.BigEndian.PutUint64(first[:8], uint64(max(0, now.Add(-mediansOver).UnixMilli()))<<16)
	rows, err := q.BondModelMedians(ctx, pgtype.UUID{Bytes: first, Valid: true}, currency, mediansOperators)
	if err != nil {
		return nil, fmt.Errorf("read median prices: %w", err)
	}
	out := make(Medians, len(rows))
	for _, r := range rows {
		out[r.GPUModel] = money.Micro(r.Median)
	}
	return out, nil
}

// listed is a GPU model that an operator offers.
type listed struct {
	model     string
	gpus      int64
	price     money.Micro // of one GPU, the operator's own
	elsewhere money.Micro // the least that one costs at another operator; 0: none offers it
}

// usualRate returns what an hour of all listed GPUs usually costs: their median price, or where a model has none, the
// operator's own price, but not more than the least at another operator. So an operator's own price does not decide how
// much of its earnings become bond, unless it is the only one that offers the model.
func usualRate(all []listed, medians Medians) (rate money.Micro) {
	for _, l := range all {
		price := l.price
		if l.elsewhere > 0 {
			price = min(price, l.elsewhere)
		}
		if m := medians[l.model]; m > 0 {
			price = m
		}
		rate += price * money.Micro(l.gpus)
	}
	return rate
}

// Retaining is how much of maturing earnings is kept as bond; see Retained.
type Retaining struct {
	ppm    int64
	target money.Nano // of the whole bond
}

// ReadRetaining reads what Retained needs, before the operator's accounts are locked.
func ReadRetaining(ctx context.Context, q *dbq.Queries, org id.Org, medians Medians) (Retaining, error) {
	t, err := TermsOf(ctx, q, org)
	if err != nil || t.RetainPPM == 0 {
		return Retaining{}, err
	}
	rows, err := q.BondListedModels(ctx, org)
	if err != nil {
		return Retaining{}, fmt.Errorf("read offers of %s: %w", org, err)
	}
	all := make([]listed, len(rows))
	for i, r := range rows {
		all[i] = listed{r.GPUModel, r.Gpus, money.Micro(r.Price), money.Micro(r.Elsewhere)}
	}
	return Retaining{t.RetainPPM, money.CostOf(usualRate(all, medians), targetHours*3600_000)}, nil
}

// Any reports whether anything may be retained at all.
func (r Retaining) Any() bool { return r.ppm > 0 && r.target > 0 }

// Retained returns how much of an amount that matures is kept as bond, for an operator whose bond is so much already,
// what is reserved for leases included.
func (r Retaining) Retained(matures, bond money.Nano) money.Nano {
	if matures <= 0 {
		return 0
	}
	return max(0, min(money.Share(matures, r.ppm), r.target-bond))
}
