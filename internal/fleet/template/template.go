// Package template keeps the templates of clusters: specs with a name, which fill the rent form in one click. Some are
// built in; an organisation adds its own.
//
// What always holds:
//   - A template holds no secret: values of the environment of an organisation's template are masked, and registry
//     credentials are dropped.
//   - A built-in template can't be changed, and no organisation can use its name.
//   - A template is only a start: renting reads the spec that is sent, never the template.
package template

import (
	"context"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
)

// Template is a spec with a name.
type Template struct {
	Name        string // lower-case letters, digits and dashes; unique among an organisation's and the built-in ones
	Title       string
	Description string
	BuiltIn     bool
	StandIn     string // on a development platform: what is started in place of the real thing; "" = the real thing
	Parameters  []Parameter
	Spec        market.Spec // without secrets: see Mask of package market
	CreatedAt   time.Time   // zero if built in
}

// Parameter is a field of the spec that people usually change.
type Parameter struct {
	Field string // nodes, gpus_per_node, gpu, disk_gb, or env.NAME
	Label string
	Help  string
}

// Templates are the use cases of templates. Safe for concurrent use.
type Templates struct {
	d       *db.DB
	builtIn []Template
}

// New returns the use cases on d. demoImage is the image that the built-in templates start on a development platform,
// whose GPUs are simulated; "" = images from public registries.
func New(d *db.DB, demoImage string) *Templates {
	t := &Templates{d: d, builtIn: builtIn()}
	if demoImage != "" {
		t.builtIn = standIns(t.builtIn, demoImage)
	}
	return t
}

// BuiltIn returns the built-in templates. The caller must not modify them.
func (s *Templates) BuiltIn() []Template { return s.builtIn }

// errNone is the fault for a name that neither the organisation nor the platform uses.
var errNone = fault.New(fault.NotFound, "template not found")

func (s *Templates) named(name string) (Template, bool) {
	i := slices.IndexFunc(s.builtIn, func(t Template) bool { return t.Name == name })
	if i < 0 {
		return Template{}, false
	}
	return s.builtIn[i], true
}

// List returns the built-in templates, then those of the caller's organisation by name.
func (s *Templates) List(ctx context.Context, who account.Principal) ([]Template, error) {
	own, err := s.own(ctx, who, "")
	return append(slices.Clone(s.builtIn), own...), err
}

// Get returns a built-in template or one of the caller's organisation. Fault: NotFound.
func (s *Templates) Get(ctx context.Context, who account.Principal, name string) (Template, error) {
	if t, ok := s.named(name); ok {
		return t, nil
	}
	own, err := s.own(ctx, who, name)
	if err != nil {
		return Template{}, err
	}
	if len(own) == 0 {
		return Template{}, errNone
	}
	return own[0], nil
}
