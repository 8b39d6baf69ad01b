// Package bucket is muster bucket: an organisation's own S3-compatible stores.
package bucket

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Command is muster bucket.
func Command(s *base.Session) *cobra.Command {
	s.Argument("BUCKET", base.Names(s, func(c *client.Client) base.Lister[client.Bucket] {
		return base.Unpaged(c.Buckets.List)
	}, func(b client.Bucket) []string { return []string{base.Described(b.Name, b.Endpoint, b.Bucket)} }))
	cmd := base.Noun("bucket", "Your own S3-compatible stores, with their credentials",
		list(s), show(s), create(s), check(s), rotate(s), remove(s))
	cmd.Example = `  muster bucket create results --endpoint https://s3.eu-central-1.amazonaws.com --region eu-central-1 --bucket acme-results
  muster bucket list
  muster bucket show results
  muster bucket check results
  muster bucket rotate results
  muster bucket delete results`
	return cmd
}

func list(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your organisation's buckets", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Buckets.List(cmd.Context())
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, b := range all.Items {
					rows[i] = []string{b.Name, b.ID.String(), b.Endpoint, within(b), b.Mode, base.FirstOf(b.Problem, "ok")}
				}
				p.TableOr("No buckets. Add one: muster bucket create results --endpoint https://… --bucket NAME",
					[]string{"NAME", "ID", "ENDPOINT", "BUCKET", "MODE", "LAST CHECK"}, rows)
			})
		},
	}
}

// within is a bucket in its store, with the prefix.
func within(b client.Bucket) string {
	if b.Prefix == "" {
		return b.Bucket
	}
	return b.Bucket + "/" + b.Prefix
}

func print(p *base.Printer, b client.Bucket) {
	p.Facts("Name", b.Name, "Id", b.ID.String(), "Endpoint", b.Endpoint, "Region", b.Region, "Bucket", within(b),
		"Mode", b.Mode, "Access key", b.AccessKeyID, "Checked at", b.CheckedAt.UTC().Format(time.DateTime),
		"Problem", b.Problem)
}

// onBucket is a command about one bucket.
func onBucket(s *base.Session, use, short string,
	f func(*cobra.Command, *client.Client, id.Bucket, string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " BUCKET", Short: short, Args: base.Exactly("BUCKET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			b, err := base.FindBucket(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return f(cmd, c, b, args[0])
		},
	}
}

func show(s *base.Session) *cobra.Command {
	return onBucket(s, "show", "Show a bucket, without its secret",
		func(cmd *cobra.Command, c *client.Client, b id.Bucket, _ string) error {
			v, err := c.Buckets.Get(cmd.Context(), b)
			return s.Result(cmd, v, err, func(p *base.Printer) { print(p, v) })
		})
}

func create(s *base.Session) *cobra.Command {
	var n client.NewBucket
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Add a bucket of your own store", Args: base.Exactly("NAME"),
		Long: `Add a bucket of an S3-compatible store of yours. Muster checks the credentials right away: the store must list
the bucket and, with mode rw, store and delete a small object in it.

The command reads the access key from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or prompts for it. Muster encrypts
the secret and never shows it. Use a separate key that has no more permissions than it needs.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			n.Name = args[0]
			if n.AccessKeyID, n.SecretAccessKey, err = accessKey(cmd); err != nil {
				return err
			}
			b, err := s.Client(cmd).Buckets.Create(cmd.Context(), n)
			return s.Result(cmd, b, err, func(p *base.Printer) { print(p, b) })
		},
	}
	cmd.Flags().StringVar(&n.Endpoint, "endpoint", "", "address of the store, https://host[:port]")
	cmd.Flags().StringVar(&n.Region, "region", "", "the bucket's region (default us-east-1)")
	cmd.Flags().StringVar(&n.Bucket, "bucket", "", "the bucket's name in the store")
	cmd.Flags().StringVar(&n.Prefix, "prefix", "", "of all keys, such as a folder (default: the whole bucket)")
	cmd.Flags().StringVar(&n.Mode, "mode", "", "rw, or ro: only reading is checked, and allowed (default rw)")
	_ = cmd.MarkFlagRequired("endpoint")
	_ = cmd.MarkFlagRequired("bucket")
	return cmd
}

// accessKey reads an access key from the environment, or asks for it.
func accessKey(cmd *cobra.Command) (key, secret string, err error) {
	key = base.Variable(cmd.Context(), "AWS_ACCESS_KEY_ID")
	secret = base.Variable(cmd.Context(), "AWS_SECRET_ACCESS_KEY")
	if key != "" && secret != "" {
		return key, secret, nil
	}
	if key, err = base.Secret(cmd, "Access key id"); err != nil {
		return "", "", err
	}
	secret, err = base.Secret(cmd, "Secret access key")
	return key, secret, err
}

func rotate(s *base.Session) *cobra.Command {
	cmd := onBucket(s, "rotate", "Replace a bucket's credentials",
		func(cmd *cobra.Command, c *client.Client, b id.Bucket, _ string) error {
			key, secret, err := accessKey(cmd)
			if err != nil {
				return err
			}
			v, err := c.Buckets.Rotate(cmd.Context(), b, client.BucketCredentials{AccessKeyID: key, SecretAccessKey: secret})
			return s.Result(cmd, v, err, func(p *base.Printer) { print(p, v) })
		})
	cmd.Long = `Replace a bucket's credentials, once the store has accepted the new ones. The command reads them from
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or prompts for them.`
	return cmd
}

func check(s *base.Session) *cobra.Command {
	return onBucket(s, "check", "Ask a bucket's store whether the credentials still work",
		func(cmd *cobra.Command, c *client.Client, b id.Bucket, name string) error {
			v, err := c.Buckets.Check(cmd.Context(), b)
			if err == nil && v.Problem != "" {
				err = fault.New(fault.Unavailable, "%s cannot be used: %s", name, v.Problem)
			}
			return s.Result(cmd, v, err, func(p *base.Printer) { p.Line("The store accepts the credentials of %s.", name) })
		})
}

func remove(s *base.Session) *cobra.Command {
	return onBucket(s, "delete", "Delete a bucket and its credentials; what the store has stays there",
		func(cmd *cobra.Command, c *client.Client, b id.Bucket, name string) error {
			err := c.Buckets.Delete(cmd.Context(), b)
			return s.Result(cmd, struct{}{}, err, func(p *base.Printer) { p.Line("Deleted the bucket %s.", name) })
		})
}
