package page

import (
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

// FirstSteps returns what a new renter does for the first cluster and soon after, and which of it is done. What the
// cluster needs comes first.
func (s *Site) FirstSteps(v *Visit) ([]view.Step, error) {
	ctx := v.R.Context()
	profile, err := s.Accounts.Profile(ctx, v.Who)
	if err != nil {
		return nil, err
	}
	b, err := s.Statements.OrgBalance(ctx, v.Who.Org)
	if err != nil {
		return nil, err
	}
	keys, err := s.Accounts.SSHKeys.List(ctx, v.Who, account.Page[id.SSHKey]{Limit: 1})
	if err != nil {
		return nil, err
	}
	clusters, err := s.Clusters.Views.List(ctx, v.Who.Org, cluster.ListRequest{Limit: 1})
	if err != nil {
		return nil, err
	}
	return []view.Step{
		{
			Title: "Add credit",
			Text:  "Renting needs the price of one minute. You get back what you do not use.",
			URL:   "/billing",
			Act:   "Add credit",
			Done:  b.Available > 0 || len(clusters) > 0,
		},
		{
			Title: "Rent your first cluster",
			Text:  "Start from a template, or search the market for your own image. A failed start is free.",
			URL:   "/templates",
			Act:   "Choose a template",
			Done:  len(clusters) > 0,
		},
		{
			Title:    "Add an SSH key",
			Text:     "It opens a shell on every node. Clusters run without one, too.",
			URL:      "/account",
			Act:      "Add a key",
			Done:     len(keys) > 0,
			Optional: true,
		},
		{
			Title: "Confirm your e-mail address",
			Text:  "Open the link that we sent to " + profile.Email + ". Nothing else waits for it.",
			URL:   "/account#email",
			Act:   "Send it again",
			Done:  profile.Verified,
		},
	}, nil
}
