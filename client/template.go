package client

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// Template is a spec with a name, from which a cluster is rented.
type Template struct {
	Name        string              `json:"name" doc:"unique among the built-in templates and those of your organisation" example:"pytorch-ddp"`
	Title       string              `json:"title" doc:"for people" example:"PyTorch DDP"`
	Description string              `json:"description" doc:"what it starts"`
	BuiltIn     bool                `json:"built_in" doc:"comes with the platform; cannot be changed"`
	StandIn     string              `json:"stand_in" doc:"on a development platform: what is started instead of the real thing; empty: the real thing"`
	Parameters  []TemplateParameter `json:"parameters" doc:"the fields of the spec that people usually change"`
	Spec        ClusterSpec         `json:"spec" doc:"send it to POST /quotes or POST /clusters, with your changes; values of env that were secret are ***"`
	CreatedAt   *time.Time          `json:"created_at" doc:"null: built in"`
}

// TemplateParameter is a field of a template's spec that people usually change.
type TemplateParameter struct {
	Field string `json:"field" doc:"field of the spec, or env and the name of a variable" example:"env.STEPS"`
	Label string `json:"label" doc:"for people" example:"Steps"`
	Help  string `json:"help" doc:"a hint for people; may be empty"`
}

// NewTemplate describes a template to save: a spec, or a cluster whose spec is saved.
type NewTemplate struct {
	Name        string      `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and dashes, such as my-data" doc:"lower-case letters, digits and dashes" example:"train-llama"`
	Title       string      `json:"title,omitempty" maxLength:"120" doc:"for people; default: the name" example:"Train Llama"`
	Description string      `json:"description,omitempty" maxLength:"1000" doc:"for people"`
	ClusterID   *id.Cluster `json:"cluster_id,omitempty" doc:"one of your organisation's clusters, whose spec is saved"`
	Spec        *Spec       `json:"spec,omitempty" doc:"the spec to save, if no cluster_id is given; values of env and registry credentials are not saved"`
}

// Create saves a template of the organisation.
func (s TemplatesService) Create(ctx context.Context, in NewTemplate) (out Template, err error) {
	err = s.c.call(ctx, http.MethodPost, path("templates"), nil, in, &out)
	return out, err
}
