package cluster

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// TemplateCommand is muster template.
func TemplateCommand(s *base.Session) *cobra.Command {
	return base.Noun("template", "List, show, save and delete templates of clusters",
		templateList(s), templateShow(s), templateSave(s), templateDelete(s))
}

func templateList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List built-in templates and those of your organisation",
		Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Templates.List(cmd.Context())
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, t := range all.Items {
					from := "yours"
					if t.BuiltIn {
						from = "built in"
					}
					rows[i] = []string{t.Name, t.Title, from, sizeOf(t.Spec), t.Spec.Image}
				}
				p.Table([]string{"NAME", "TITLE", "FROM", "SIZE", "IMAGE"}, rows)
			})
		},
	}
}

func sizeOf(s client.ClusterSpec) string {
	return strings.Join([]string{base.Counted(s.Nodes, "node"), base.Counted(s.GPUsPerNode, "GPU")}, " × ")
}

func templateShow(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "show TEMPLATE", Short: "Show a template and what it starts", Args: base.Exactly("TEMPLATE"),
		Example: "  muster template show all-reduce",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := s.Client(cmd).Templates.Get(cmd.Context(), args[0])
			return s.Result(cmd, t, err, func(p *base.Printer) { printTemplate(p, t) })
		},
	}
}

func printTemplate(p *base.Printer, t client.Template) {
	var params []string
	for _, x := range t.Parameters {
		params = append(params, x.Field)
	}
	p.Facts("Template", t.Name, "Title", t.Title, "", t.Description, "Here", t.StandIn, "Image", t.Spec.Image,
		"Entry point", strings.Join(t.Spec.Entrypoint, " "), "Command", strings.Join(t.Spec.Command, " "), "User",
		t.Spec.User, "Size", sizeOf(t.Spec), "Environment", names(t.Spec.Env), "Parameters", strings.Join(params, ", "))
	p.Line("")
	p.Line("Rent it: muster cluster create --template %s", t.Name)
}

func templateSave(s *base.Session) *cobra.Command {
	var f specFlags
	var n client.NewTemplate
	var from string
	cmd := &cobra.Command{
		Use:   "create NAME [flags] [-- COMMAND ARGUMENT…]",
		Short: "Save a spec, or that of a cluster, as a template of your organisation",
		Long: `Save a spec, or that of a cluster, as a template of your organisation. Values of the environment and registry
credentials are not saved: enter them again when you rent.`,
		Example: `  muster template create train --from-cluster train
  muster template create smi --image pytorch/pytorch:2.4.0 --gpus 2 -- nvidia-smi`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Invalid, "want NAME, such as muster template create train --from-cluster CLUSTER")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			n.Name = args[0]
			if from != "" {
				cl, err := base.FindCluster(cmd.Context(), c, from)
				if err != nil {
					return err
				}
				n.ClusterID = &cl
			} else {
				spec, err := f.spec(cmd, args[1:])
				if err != nil {
					return err
				}
				n.Spec = &spec
			}
			t, err := c.Templates.Create(cmd.Context(), n)
			return s.Result(cmd, t, err, func(p *base.Printer) { printTemplate(p, t) })
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&from, "from-cluster", "", "save the spec of this cluster; flags of the spec are ignored")
	cmd.Flags().StringVar(&n.Title, "title", "", "a title for people")
	cmd.Flags().StringVar(&n.Description, "description", "", "what it starts, for people")
	return cmd
}

func templateDelete(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete TEMPLATE", Short: "Delete a template of your organisation", Args: base.Exactly("TEMPLATE"),
		Example: "  muster template delete smi",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := s.Client(cmd).Templates.Delete(cmd.Context(), args[0])
			return s.Result(cmd, struct{}{}, err, func(p *base.Printer) { p.Line("Deleted the template %s.", args[0]) })
		},
	}
}

// readTemplate sets s to the spec of a template. Values of the environment that the template does not have are left
// out: --env sets them.
func readTemplate(ctx context.Context, c *client.Client, name string, s *client.Spec) error {
	t, err := c.Templates.Get(ctx, name)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(t.Spec)
	if err == nil {
		err = json.Unmarshal(raw, s)
	}
	for k, v := range s.Env {
		if v == "***" {
			delete(s.Env, k)
		}
	}
	return err
}
