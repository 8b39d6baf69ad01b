package host

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// NewEnrollment is what an operator says about a host that will enrol.
type NewEnrollment struct {
	Org    id.Org
	User   id.User
	Name   string        // "" = the machine's hostname
	Region string        // "eu-west", …
	Fabric string        // name of one of the org's fabrics, made when new; "" = none
	TTL    time.Duration // 0 = MaxEnrollmentTTL
}

// MaxEnrollmentTTL is how long an enrolment token works at most.
const MaxEnrollmentTTL = time.Hour

// Enrollment is a token to enrol one host with.
type Enrollment struct {
	ID        id.Enrollment
	Token     string // secret; shown once
	ExpiresAt time.Time
}

// CreateEnrollment makes a token. fault.Invalid names fields of the REST request.
func CreateEnrollment(ctx context.Context, tx *db.Tx, n NewEnrollment) (Enrollment, error) {
	return Enrollment{}, notBuilt()
}

// EnrollPolicy is what this platform takes.
type EnrollPolicy struct {
	Origins        []string // scheme://host[:port] agents may have been told to enrol at
	AllowSimulated bool     // sandbox only
}

// Enroll makes a host of a token and an agent's fresh keys. The same token with the same keys returns the same host
// again (the answer may have been lost). Every refusal is a fault that says why; Extra["reason"] is its code.
func Enroll(ctx context.Context, tx *db.Tx, p EnrollPolicy, r agentapi.EnrollRequest) (Host, error) {
	return Host{}, notBuilt()
}
