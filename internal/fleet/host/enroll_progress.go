package host

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Enrolling is the progress of an enrolment.
type Enrolling struct {
	ExpiresAt time.Time
	Expired   bool       // the token expired unused
	UsedAt    *time.Time // nil = not used yet
	// Step is what the install script does, or did last, before it uses the token; "" = it has not begun. If StepFailed,
	// it ended there, and StepDetail is the reason that the script gave.
	Step       Step
	StepDetail string
	StepFailed bool
	Host       *Detail // the enrolled host; nil = none yet
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
	p := Enrolling{ExpiresAt: r.ExpiresAt, Expired: r.Expired, UsedAt: r.UsedAt, Step: Step(r.Step),
		StepDetail: r.StepDetail, StepFailed: r.StepFailed}
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

// Step is a step of the install script.
type Step string

// The steps in their order.
const (
	StepFetch   Step = "fetch"   // the agent's archive is downloaded and its hash compared
	StepCheck   Step = "check"   // muster-agent doctor looks at the machine
	StepInstall Step = "install" // files and the service are put in place
	StepEnrol   Step = "enrol"   // keys are made and the token is used
)

// Steps returns all steps in their order.
func Steps() []Step { return []Step{StepFetch, StepCheck, StepInstall, StepEnrol} }

// maxStepDetail is how much of a script's words is kept, in bytes.
const maxStepDetail = 500

// ReportStep records how far the install script is that will use the token. The token is all that it needs, as for the
// enrolment itself. Faults: NotFound (no token that can still be used), Invalid (no such step).
func (x *Hosts) ReportStep(ctx context.Context, token string, step Step, detail string, failed bool) error {
	if !slices.Contains(Steps(), step) {
		return fault.New(fault.Invalid, "there is no step %q", text.Clip(string(step), 40))
	}
	hash := sha256.Sum256([]byte(token))
	n, err := x.db.Q.SetEnrollmentStep(ctx, dbq.SetEnrollmentStepParams{
		Step: string(step), Detail: text.Clip(strings.ToValidUTF8(detail, ""), maxStepDetail), Failed: failed,
		TokenHash: hash[:],
	})
	switch {
	case err != nil:
		return fmt.Errorf("record a step of an installation: %w", err)
	case n == 0:
		return fault.New(fault.NotFound, "enrolment not found")
	}
	return nil
}
