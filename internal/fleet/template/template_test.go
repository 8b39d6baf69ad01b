package template_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/template"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// Every built-in template can be rented as it stands, on a platform with real GPUs and on a development platform.
func TestBuiltIn_CanBeRented(t *testing.T) {
	t.Parallel()
	for _, image := range []string{"", "127.0.0.1:5000/muster/demo:latest"} {
		for _, x := range template.New(nil, image).BuiltIn() {
			if err := x.Spec.Validate(true); err != nil {
				t.Errorf("%s: %v", x.Name, err)
			}
			if image != "" && (x.Spec.Image != image || x.StandIn == "") {
				t.Errorf("%s starts %s on a development platform, and says %q", x.Name, x.Spec.Image, x.StandIn)
			}
			for _, p := range x.Parameters {
				name, env := strings.CutPrefix(p.Field, "env.")
				if _, has := x.Spec.Env[name]; env && !has {
					t.Errorf("%s: the parameter %s sets nothing", x.Name, p.Field)
				}
			}
		}
	}
}

func TestTemplates_OfAnOrganisation(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	other, stranger := fleettest.Org(t, d)
	who, them := account.Principal{Org: org, User: user}, account.Principal{Org: other, User: stranger}
	s := template.New(d, "")
	spec := market.DefaultSpec()
	spec.Image, spec.Env = "x/y:1", map[string]string{"HF_TOKEN": "s3cret", "STEPS": "5"}
	spec.RegistryAuth = &market.RegistryAuth{Username: "robot", Password: "s3cret"}
	create := func(who account.Principal, name string) error {
		_, _, err := s.Create(t.Context(), who, template.NewTemplate{Name: name, Spec: spec}, idem.Request{})
		return err
	}
	if err := create(who, "train"); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), who, "train")
	if err != nil || got.Spec.Env["HF_TOKEN"] != market.Mask || got.Spec.RegistryAuth != nil || got.BuiltIn {
		t.Errorf("%v %+v", err, got)
	}
	var stored string
	if err := d.Pool.QueryRow(t.Context(), "SELECT spec::text FROM template").Scan(&stored); err != nil ||
		strings.Contains(stored, "s3cret") {
		t.Errorf("%v: a secret is stored: %s", err, stored)
	}
	for name, kind := range map[string]fault.Kind{
		"train": fault.Conflict, "jupyterlab": fault.Conflict, "Train": fault.Invalid, "": fault.Invalid,
	} {
		if err := create(who, name); !fault.Is(err, kind) {
			t.Errorf("create %q: %v, want %s", name, err, kind)
		}
	}
	if _, err := s.Get(t.Context(), them, "train"); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organisation gets it: %v", err)
	}
	if err := s.Delete(t.Context(), them, "train"); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organisation deletes it: %v", err)
	}
	if err := create(them, "train"); err != nil {
		t.Errorf("another organisation uses the name: %v", err)
	}
	if err := s.Delete(t.Context(), who, "jupyterlab"); !fault.Is(err, fault.Conflict) {
		t.Errorf("delete a built-in one: %v", err)
	}
	if err := s.Delete(t.Context(), who, "train"); err != nil {
		t.Fatal(err)
	}
	all, err := s.List(t.Context(), who)
	if err != nil || len(all) != len(s.BuiltIn()) {
		t.Errorf("%v, %d templates are left", err, len(all))
	}
	for i := range template.MaxPerOrg {
		if err := create(who, fmt.Sprintf("t%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := create(who, "more"); !fault.Is(err, fault.QuotaExceeded) {
		t.Errorf("one more than the limit: %v", err)
	}
}
