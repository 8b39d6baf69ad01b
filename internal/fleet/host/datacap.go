package host

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

const (
	// MaxDataCap is the largest allowed cap in GB a month: more than a line of 100 Gbit/s can carry.
	MaxDataCap = 100_000_000
	// capWarning is the percentage of a cap from which its operator is warned.
	capWarning = 90

	gigabyte = 1_000_000_000 // decimal, as network providers count
)

// month is a host's data use in one calendar month, with the host's organisation and name.
type month struct {
	client.DataMonth
	begin time.Time
	org   id.Org
	name  string
}

// DataCap is a change to a host's data caps, in GB a month for each direction. A nil field stays unchanged; 0 removes
// the cap.
type DataCap struct {
	UpGB, DownGB *int64
}

// DataMonth returns the data use of one host of who's organisation in the current month. Fault: NotFound.
func (x *Hosts) DataMonth(ctx context.Context, who account.Principal, host id.Host) (client.DataMonth, error) {
	m, err := dataMonth(ctx, x.db.Q, host)
	if err == nil && m.org != who.Org {
		err = NotFound()
	}
	return m.DataMonth, err
}

func dataMonth(ctx context.Context, q *dbq.Queries, host id.Host) (month, error) {
	r, err := q.HostDataMonth(ctx, host)
	if db.NoRows(err) {
		return month{}, NotFound()
	}
	if err != nil {
		return month{}, fmt.Errorf("data of %s: %w", host, err)
	}
	m := month{
		DataMonth: client.DataMonth{
			UpBytes:     r.UpBytes,
			DownBytes:   r.DownBytes,
			OverlayUp:   r.OverlayUpBytes,
			OverlayDown: r.OverlayDownBytes,
			UpCapGB:     r.UpCapGb,
			DownCapGB:   r.DownCapGb,
		},
		begin: r.Month.UTC(),
		org:   r.OrgID,
		name:  r.Name,
	}
	m.Month = m.begin.Format("2006-01")
	if r.PullsTold != nil {
		m.PulledBytes = &r.PullBytes
	}
	m.UsedPercent = math.Floor(10*max(Percent(m.Sent(), m.UpCapGB), Percent(m.Received(), m.DownCapGB))) / 10
	if r.CappedUntil != nil && r.CappedUntil.After(m.begin) {
		until := r.CappedUntil.UTC()
		m.CappedUntil = &until
	}
	return m, nil
}

// DataForPopular returns how many bytes of popular images, which no lease needs yet, a host may still receive this
// month. Popular images may use the cap up to capWarning percent; the rest is reserved for leases. A host that is
// capped takes no leases and needs no images. bounded is false if no cap applies.
func DataForPopular(ctx context.Context, q *dbq.Queries, host id.Host) (left int64, bounded bool, err error) {
	m, err := dataMonth(ctx, q, host)
	switch {
	case err != nil || m.CappedUntil == nil && m.DownCapGB == nil:
		return 0, false, err
	case m.CappedUntil != nil:
		return 0, true, nil
	}
	return max(*m.DownCapGB*(gigabyte/100*capWarning)-m.Received(), 0), true, nil
}

// Percent returns the used percentage of a cap of capGB, or 0 without a cap.
func Percent(bytes int64, capGB *int64) float64 {
	if capGB == nil {
		return 0
	}
	return 100 * float64(bytes) / (float64(*capGB) * gigabyte)
}

// setDataCap changes the caps of one host of who's organisation. Data that was used this month counts at once, so the
// host may stop or resume taking new leases. Running leases continue in any case.
func setDataCap(ctx context.Context, tx *db.Tx, b *bus.Bus, who account.Principal, host id.Host, c DataCap) error {
	var bad fault.Fields
	for _, f := range []struct {
		name string
		gb   *int64
	}{{"up_cap_gb", c.UpGB}, {"down_cap_gb", c.DownGB}} {
		if f.gb != nil && (*f.gb < 0 || *f.gb > MaxDataCap) {
			bad.Add(f.name, "want 1 to %d GB a month, or 0 for no cap", int64(MaxDataCap))
		}
	}
	if err := bad.Err(); err != nil {
		return err
	}
	h, err := lockOwn(ctx, tx, who.Org, host)
	if err != nil {
		return err
	}
	m, err := dataMonth(ctx, tx.Q, host)
	if err != nil {
		return err
	}
	up, down := changed(m.UpCapGB, c.UpGB), changed(m.DownCapGB, c.DownGB)
	if err := tx.Q.SetHostDataCap(ctx, up, down, host); err != nil {
		return fmt.Errorf("data cap of %s: %w", host, err)
	}
	if err := updateDataCap(ctx, tx, host); err != nil {
		return err
	}
	publish(tx, b, h)
	return audit.Record(ctx, tx, who.Event("host.data_cap", host.String(),
		map[string]any{"up_cap_gb": amount(up), "down_cap_gb": amount(down)}))
}

// changed returns a cap after a change. A nil result means no cap.
func changed(now, to *int64) *int64 {
	switch {
	case to == nil:
		return now
	case *to == 0:
		return nil
	}
	return to
}

// amount returns a cap in GB, or 0 for no cap.
func amount(gb *int64) int64 {
	if gb == nil {
		return 0
	}
	return *gb
}

// updateDataCap compares the month's data use with the caps: it sets whether the host takes new leases, and notifies
// the operator, at most once a month for each notice.
func updateDataCap(ctx context.Context, tx *db.Tx, host id.Host) error {
	m, err := dataMonth(ctx, tx.Q, host)
	if err != nil {
		return err
	}
	if full := m.UsedPercent >= 100; full != (m.CappedUntil != nil) {
		if _, err := lockOne(ctx, tx, host); err != nil {
			return err
		}
		if m, err = dataMonth(ctx, tx.Q, host); err != nil { // the caps may have changed during the wait for the lock
			return err
		}
		var until *time.Time
		if m.UsedPercent >= 100 {
			next := m.begin.AddDate(0, 1, 0)
			until = &next
		}
		if err := tx.Q.SetHostCapped(ctx, until, host); err != nil {
			return fmt.Errorf("data cap of %s: %w", host, err)
		}
	}
	if m.UsedPercent < capWarning {
		return nil
	}
	_, err = notify.Add(ctx, tx, m.notice(host))
	return err
}

// notice returns the operator's notice that a cap is nearly or completely used up.
func (m *month) notice(host id.Host) notify.Notice {
	name, next := m.begin.Format("January"), m.begin.AddDate(0, 1, 0).Format("2 January")
	n := notify.Notice{
		Org:      m.org,
		Severity: notify.Warn,
		Object:   host.String(),
		Key:      fmt.Sprintf("data_cap:%d:%s:%s", capWarning, host, m.Month),
		Title:    fmt.Sprintf("%s has used %d %% of its line's data cap for %s.", m.name, int(m.UsedPercent), name),
		Body: fmt.Sprintf("Sent: %s. Received: %s. Once a cap is used up the host takes no new leases before %s (UTC); "+
			"leases that run go on and go on using data. If the line takes more, raise the cap.",
			used(m.Sent(), m.UpCapGB), used(m.Received(), m.DownCapGB), next),
	}
	if m.UsedPercent >= 100 {
		n.Key = fmt.Sprintf("data_cap:100:%s:%s", host, m.Month)
		n.Title = fmt.Sprintf("%s has used up its line's data cap for %s and takes no new leases.", m.name, name)
		n.Body = fmt.Sprintf("Sent: %s. Received: %s. It is offered again on %s (UTC). Leases that run go on and go on "+
			"using data: take the host back if they must not. If the line takes more, raise the cap.",
			used(m.Sent(), m.UpCapGB), used(m.Received(), m.DownCapGB), next)
	}
	return n
}

func used(bytes int64, capGB *int64) string {
	if capGB == nil {
		return fmt.Sprintf("%.1f GB, no cap", float64(bytes)/gigabyte)
	}
	return fmt.Sprintf("%.1f of %d GB", float64(bytes)/gigabyte, *capGB)
}

// usedUp returns the reason for which a host with a used-up cap sells nothing until the given time, the start of a
// month.
func usedUp(until time.Time) string {
	until = until.UTC()
	return fmt.Sprintf("its line's data cap for %s is used up; it is offered again on %s",
		until.AddDate(0, 0, -1).Format("January"), until.Format("2 January"))
}

// LiftDataCaps makes hosts available again whose cap ended with the month. Renting checks the time itself; LiftDataCaps
// is for views of the offers that are kept in tables or memory.
func LiftDataCaps(ctx context.Context, d *db.DB) (int, error) {
	n, err := d.Q.LiftDataCaps(ctx)
	if err != nil {
		return 0, fmt.Errorf("lift data caps: %w", err)
	}
	return int(n), nil
}
