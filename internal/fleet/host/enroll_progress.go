package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// Enrolling is the progress of an enrolment.
type Enrolling struct {
	ExpiresAt time.Time
	Expired   bool       // the token expired unused
	UsedAt    *time.Time // nil = not used yet
	Host      *Detail    // the enrolled host; nil = none yet
}

// Enrollment returns the progress of one enrolment of who's organisation. Fault: NotFound.
func (x *Hosts) Enrollment(ctx context.Context, who account.Principal, e id.Enrollment) (Enrolling, error) {
	r, err := x.db.Q.GetEnrollment(ctx, e, who.Org)
	if db.NoRows(err) {
		return Enrolling{}, NotFound()
	}
	if err != nil {
		return Enrolling{}, fmt.Errorf("read enrolment %s: %w", e, err)
	}
	p := Enrolling{ExpiresAt: r.ExpiresAt, Expired: r.Expired, UsedAt: r.UsedAt}
	if r.HostID.IsZero() {
		return p, nil
	}
	d, err := get(ctx, x.db.Q, who.Org, r.HostID)
	if err != nil {
		return Enrolling{}, err
	}
	p.Host = &d
	return p, nil
}
