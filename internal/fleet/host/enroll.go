package host

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/text"
)

// NewEnrollment describes a host that is to enrol.
type NewEnrollment struct {
	Name   string        // "" = the machine's hostname
	Region string        // "eu-west", …
	Fabric string        // name of one of the org's fabrics, created if new; "" = none
	TTL    time.Duration // 0 = MaxEnrollmentTTL
}

// MaxEnrollmentTTL is the longest lifetime of an enrolment token.
const MaxEnrollmentTTL = time.Hour

// Enrollment is a token that enrols one host.
type Enrollment struct {
	ID        id.Enrollment
	Token     string // secret; shown once
	ExpiresAt time.Time
}

const tokenPrefix = "mst_enroll_"

var (
	namePattern   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	regionPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)
)

// CreateEnrollment creates a token that enrols one host in who's organisation. Faults: Invalid, with the field names of
// the REST request; Conflict if the organisation has a host of that name.
func (x *Hosts) CreateEnrollment(ctx context.Context, who account.Principal, n NewEnrollment,
	once idem.Request) (Enrollment, idem.Outcome, error) {
	if err := n.check(); err != nil {
		return Enrollment{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, x.db, once, func(ctx context.Context, tx *db.Tx) (Enrollment, error) {
		return createEnrollment(ctx, tx, who, n)
	})
}

func (n NewEnrollment) check() error {
	var bad fault.Fields
	if n.Name != "" && !namePattern.MatchString(n.Name) {
		bad.Add("name", "want 1 to 63 lower-case letters, digits, dots and hyphens")
	}
	if !regionPattern.MatchString(n.Region) {
		bad.Add("region", "want 1 to 32 lower-case letters, digits and hyphens, such as eu-west")
	}
	if n.Fabric != "" && !namePattern.MatchString(n.Fabric) {
		bad.Add("fabric", "want 1 to 63 lower-case letters, digits, dots and hyphens")
	}
	return bad.Err()
}

func createEnrollment(ctx context.Context, tx *db.Tx, who account.Principal, n NewEnrollment) (Enrollment, error) {
	if n.TTL <= 0 || n.TTL > MaxEnrollmentTTL {
		n.TTL = MaxEnrollmentTTL
	}
	if n.Name != "" {
		if taken, err := tx.Q.HostNameTaken(ctx, who.Org, n.Name); err != nil || taken {
			return Enrollment{}, orNameTaken(err, n.Name)
		}
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	e := Enrollment{ID: id.New[id.Enrollment]()}
	e.Token = tokenPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret))
	hash := sha256.Sum256([]byte(e.Token))
	var err error
	e.ExpiresAt, err = tx.Q.InsertEnrollment(ctx, dbq.InsertEnrollmentParams{
		ID: e.ID, OrgID: who.Org, CreatedBy: who.User, Name: n.Name, Region: n.Region, Fabric: n.Fabric,
		TokenHash: hash[:], TtlMs: n.TTL.Milliseconds(),
	})
	if err != nil {
		return Enrollment{}, fmt.Errorf("create enrolment: %w", err)
	}
	return e, nil
}

func orNameTaken(err error, name string) error {
	if err != nil {
		return fmt.Errorf("look up name: %w", err)
	}
	return refused(fault.Conflict, "name_taken", "You already have a host named %s.", name)
}

// refused returns a fault with a reason code for programs in Extra["reason"].
func refused(kind fault.Kind, reason, format string, args ...any) error {
	f := fault.New(kind, format, args...)
	f.Extra = map[string]any{"reason": reason}
	return f
}

// EnrollPolicy is the enrolments that this platform accepts, and the request's address.
type EnrollPolicy struct {
	Origins        []string // scheme://host[:port] addresses at which agents may enrol
	AllowSimulated bool     // sandbox only
	Address        string   // the request's remote address, for the audit log
}

// Enroll creates a host from a token and an agent's new keys. A repeated request with the same token and keys returns
// the same host, because the first response may have been lost. A refusal is a fault that leaves the token usable;
// Extra["reason"] is bad_request, bad_proof, toolkit, simulated, token_unknown, token_used, token_expired, key_known,
// name_taken or gpu_active.
func Enroll(ctx context.Context, tx *db.Tx, p EnrollPolicy, r agentapi.EnrollRequest) (Host, error) {
	if err := checkEnroll(p, &r); err != nil {
		return Host{}, err
	}
	hash := sha256.Sum256([]byte(r.Token))
	t, err := tx.Q.LockEnrollment(ctx, hash[:])
	switch {
	case db.NoRows(err):
		return Host{}, refused(fault.Unauthorized, "token_unknown",
			"This enrolment token is not known here: it was mistyped, or made on another platform.")
	case err != nil:
		return Host{}, fmt.Errorf("look up enrolment token: %w", err)
	case t.UsedAt != nil:
		return enrolledBefore(ctx, tx, t, &r)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return Host{}, err
	}
	if !now.Before(t.ExpiresAt) {
		return Host{}, refused(fault.Unauthorized, "token_expired", "This enrolment token expired at %s: make a new one.",
			t.ExpiresAt.UTC().Format(time.RFC3339))
	}
	host, err := insertHost(ctx, tx, t, &r)
	if err != nil {
		return Host{}, err
	}
	_, err = putInventories(ctx, tx, []*checked{{host: host, inv: &r.Inventory}}, true)
	if err != nil {
		return Host{}, err
	}
	if err := tx.Q.UseEnrollment(ctx, host, t.ID); err != nil {
		return Host{}, fmt.Errorf("use enrolment token: %w", err)
	}
	h, err := lockOne(ctx, tx, host)
	if err != nil {
		return Host{}, err
	}
	return h, audit.Record(ctx, tx, audit.Event{
		Org: t.OrgID, User: t.CreatedBy, Action: "host.enroll", Object: host.String(), Address: p.Address,
		Detail: map[string]any{"name": h.Name, "gpus": len(r.Inventory.GPUs), "enrollment": t.ID.String(),
			"ephemeral": h.Ephemeral},
	})
}

// checkEnroll makes the checks that need no database: the request's form, its proofs, and the platform's policy.
func checkEnroll(p EnrollPolicy, r *agentapi.EnrollRequest) error {
	if err := r.Validate(); err != nil {
		return refused(fault.Invalid, "bad_request", "The enrolment request is malformed: %s.", err)
	}
	if err := checkInventory(&r.Inventory); err != nil {
		return err
	}
	if !proven(p.Origins, r) {
		return refused(fault.Unauthorized, "bad_proof",
			"The proof does not verify: it must be signed by both keys, for this token and for the address %s.",
			strings.Join(p.Origins, " or "))
	}
	if r.Inventory.Simulated && !p.AllowSimulated {
		return refused(fault.Forbidden, "simulated", "This host's GPUs are simulated: they can be enrolled in the sandbox "+
			"only.")
	}
	if why := toolkitUnfit(&r.Inventory); why != "" {
		return refused(fault.Conflict, "toolkit", "%s%s.", strings.ToUpper(why[:1]), why[1:])
	}
	return nil
}

func proven(origins []string, r *agentapi.EnrollRequest) bool {
	link, err := nkeys.FromPublicKey(r.LinkKey)
	if err != nil {
		return false
	}
	for _, origin := range origins {
		proof := agentapi.EnrollProof(origin, r.Token, r.LinkKey, r.AttestKey)
		if ed25519.Verify(r.AttestKey, proof, r.Proof) && link.Verify(proof, r.LinkProof) == nil {
			return true
		}
	}
	return false
}

// enrolledBefore handles a request with a used token: it returns the token's host if the keys are that host's, else a
// fault.
func enrolledBefore(ctx context.Context, tx *db.Tx, t dbq.LockEnrollmentRow, r *agentapi.EnrollRequest) (Host, error) {
	k, err := tx.Q.LinkByKey(ctx, r.LinkKey)
	if err != nil && !db.NoRows(err) {
		return Host{}, fmt.Errorf("look up link key: %w", err)
	}
	if err != nil || k.HostID != t.HostID || k.RevokedAt != nil || !bytes.Equal(k.AttestKey, r.AttestKey) {
		return Host{}, refused(fault.Conflict, "token_used", "This enrolment token was used at %s: each enrols one host. "+
			"Make a new one.", t.UsedAt.UTC().Format(time.RFC3339))
	}
	return lockOne(ctx, tx, t.HostID)
}

func insertHost(ctx context.Context, tx *db.Tx, t dbq.LockEnrollmentRow, r *agentapi.EnrollRequest) (id.Host, error) {
	host := id.New[id.Host]()
	p := dbq.InsertHostParams{ID: host, OrgID: t.OrgID, Name: t.Name, Region: t.Region, Simulated: r.Inventory.Simulated,
		Ephemeral: r.Ephemeral}
	if p.Name == "" {
		p.Name = nameFor(r.Inventory.Hostname)
		taken, err := tx.Q.HostNameTaken(ctx, t.OrgID, p.Name)
		if err != nil {
			return host, orNameTaken(err, p.Name)
		}
		if taken { // many machines have the same hostname, and no person chose this name
			s := host.String()
			p.Name = text.Clip(p.Name, 56) + "-" + s[len(s)-6:]
		}
	}
	if t.Fabric != "" {
		var err error
		if p.FabricID, err = tx.Q.EnsureFabric(ctx, id.New[id.Fabric](), t.OrgID, t.Fabric); err != nil {
			return host, fmt.Errorf("fabric %s: %w", t.Fabric, err)
		}
	}
	err := tx.Q.InsertHost(ctx, p)
	if db.IsUnique(err, "host_name") {
		return host, orNameTaken(nil, p.Name)
	}
	if err == nil {
		err = tx.Q.InsertHostStatus(ctx, host)
	}
	if err == nil {
		err = tx.Q.InsertHostKey(ctx, host, r.LinkKey, r.AttestKey)
	}
	if db.IsUnique(err, "host_key_link") {
		return host, refused(fault.Conflict, "key_known", "This link key belongs to another host: every host makes its own.")
	}
	if err != nil {
		return host, fmt.Errorf("enrol: %w", err)
	}
	return host, nil
}

// nameFor derives a valid host name from a machine's hostname.
func nameFor(hostname string) string {
	name, _, _ := strings.Cut(strings.ToLower(hostname), ".")
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, text.Clip(name, 63))
	if name = strings.Trim(name, "-"); name == "" {
		return "host"
	}
	return name
}

// EndEnrollments ends the enrolment tokens that a user created for an org and that no host has used, because the user
// may no longer run its hosts.
func EndEnrollments(ctx context.Context, tx *db.Tx, org id.Org, user id.User) error {
	if _, err := tx.Q.EndEnrollmentsOf(ctx, org, user); err != nil {
		return fmt.Errorf("end enrolment tokens of %s: %w", user, err)
	}
	return nil
}
