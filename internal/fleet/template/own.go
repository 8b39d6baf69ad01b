package template

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/idem"
)

// Limits of an organisation's templates.
const (
	MaxPerOrg      = 100
	maxTitle       = 120  // bytes
	maxDescription = 1000 // bytes
)

var nameShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// NewTemplate is what to save.
type NewTemplate struct {
	Name, Title, Description string
	Spec                     market.Spec
}

// Create saves a template of the caller's organisation. The values of the environment are masked, and registry
// credentials dropped: the renter enters them again. Faults: Invalid, Conflict if the name is used, QuotaExceeded.
func (s *Templates) Create(ctx context.Context, who account.Principal, n NewTemplate,
	once idem.Request) (Template, idem.Outcome, error) {
	return idem.Once(ctx, s.d, once, func(ctx context.Context, tx *db.Tx) (Template, error) {
		if err := n.check(); err != nil {
			return Template{}, err
		}
		if _, used := s.named(n.Name); used {
			return Template{}, errUsed(n.Name)
		}
		open, _ := n.Spec.Split()
		spec, err := json.Marshal(open)
		if err != nil {
			return Template{}, err
		}
		if err := tx.Q.LockTemplatesOfOrg(ctx, who.Org.String()); err != nil {
			return Template{}, fmt.Errorf("lock templates of %s: %w", who.Org, err)
		}
		have, err := tx.Q.CountTemplates(ctx, who.Org)
		if err != nil {
			return Template{}, fmt.Errorf("count templates of %s: %w", who.Org, err)
		}
		if have >= MaxPerOrg {
			return Template{}, fault.New(fault.QuotaExceeded, "your organisation has %d templates; delete one first", have)
		}
		rows, err := tx.Q.InsertTemplate(ctx, dbq.InsertTemplateParams{
			OrgID: who.Org, Name: n.Name, Title: n.Title, Description: n.Description, Spec: spec, CreatedBy: who.User,
		})
		if err != nil {
			return Template{}, fmt.Errorf("save template of %s: %w", who.Org, err)
		}
		if len(rows) == 0 {
			return Template{}, errUsed(n.Name)
		}
		t, err := of(rows[0])
		if err != nil {
			return Template{}, err
		}
		return t, audit.Record(ctx, tx, who.Event("template.create", n.Name, map[string]any{"image": n.Spec.Image}))
	})
}

func errUsed(name string) error {
	return fault.New(fault.Conflict, "there is a template %q already: choose another name", name)
}

func (n NewTemplate) check() error {
	var bad fault.Fields
	if !nameShape.MatchString(n.Name) {
		bad.Add("name", "Use up to 63 lower-case letters, digits and dashes, such as train-llama.")
	}
	if len(n.Title) > maxTitle {
		bad.Add("title", "Use at most %d bytes.", maxTitle)
	}
	if len(n.Description) > maxDescription {
		bad.Add("description", "Use at most %d bytes.", maxDescription)
	}
	if f := fault.From(n.Spec.Validate(true)); f != nil {
		for _, x := range f.Fields {
			bad.Add("spec."+x.Location, "%s", x.Message)
		}
	}
	return bad.Err()
}

// Delete deletes a template of the caller's organisation. Faults: NotFound, Conflict for a built-in one.
func (s *Templates) Delete(ctx context.Context, who account.Principal, name string) error {
	if _, ok := s.named(name); ok {
		return fault.New(fault.Conflict, "%q is built in and cannot be deleted", name)
	}
	return s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Q.DeleteTemplate(ctx, who.Org, name)
		if err != nil {
			return fmt.Errorf("delete template of %s: %w", who.Org, err)
		}
		if n == 0 {
			return errNone
		}
		return audit.Record(ctx, tx, who.Event("template.delete", name, nil))
	})
}

// own returns the templates of the caller's organisation by name, or the one with the given name.
func (s *Templates) own(ctx context.Context, who account.Principal, name string) ([]Template, error) {
	if who.Org.IsZero() {
		return nil, nil
	}
	rows, err := s.d.Q.Templates(ctx, who.Org, name)
	if err != nil {
		return nil, fmt.Errorf("templates of %s: %w", who.Org, err)
	}
	out := make([]Template, len(rows))
	for i, r := range rows {
		if out[i], err = of(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// of converts a row. The parameters of an organisation's template are its size, the query and its environment.
func of(r dbq.Template) (Template, error) {
	t := Template{
		Name: r.Name, Title: r.Title, Description: r.Description, CreatedAt: r.CreatedAt,
		Parameters: []Parameter{paramNodes, paramGPUs, paramQuery},
	}
	if err := json.Unmarshal(r.Spec, &t.Spec); err != nil {
		return Template{}, fmt.Errorf("read template %s of %s: %w", r.Name, r.OrgID, err)
	}
	for _, k := range slices.Sorted(maps.Keys(t.Spec.Env)) {
		t.Parameters = append(t.Parameters, Parameter{Field: "env." + k, Label: k})
	}
	return t, nil
}
