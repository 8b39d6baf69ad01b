package base

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/text"
)

// Exactly is cobra.ExactArgs with an error that names the missing arguments.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no arguments, and was given " + strings.Join(args, " ")
		}
		return fault.New(fault.Invalid, "%s takes %s; see %s --help", cmd.CommandPath(), want, cmd.CommandPath())
	}
}

// AtMost is cobra.MaximumNArgs(1) with a usage fault.
func AtMost(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= 1 {
			return nil
		}
		return fault.New(fault.Invalid, "%s takes one %s at most: put it in quotes; see %s --help", cmd.CommandPath(), name,
			cmd.CommandPath())
	}
}

// Noun is a command that only contains others.
func Noun(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return NoCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}

// NoCommand returns the error for a word that is no command below cmd. It names the command that was probably meant.
func NoCommand(cmd *cobra.Command, word string) error {
	if deeper := below(cmd, word); len(deeper) > 0 && len(deeper) <= 3 {
		return fault.New(fault.Invalid, "there is no command \"%s %s\"; did you mean %s?", cmd.CommandPath(), word,
			strings.Join(deeper, " or "))
	}
	if like := cmd.SuggestionsFor(word); len(like) > 0 {
		return fault.New(fault.Invalid, "there is no command \"%s %s\"; did you mean %s %s?", cmd.CommandPath(), word,
			cmd.CommandPath(), strings.Join(like, " or "))
	}
	return fault.New(fault.Invalid, "there is no command \"%s %s\"; see %s --help", cmd.CommandPath(), word,
		cmd.CommandPath())
}

// below returns the commands of the nouns below cmd that have a name, as "muster cluster logs".
func below(cmd *cobra.Command, name string) (out []string) {
	for _, noun := range cmd.Commands() {
		for _, sub := range noun.Commands() {
			if sub.Name() == name || sub.HasAlias(name) {
				out = append(out, sub.CommandPath())
			}
		}
	}
	return out
}

// FlagError returns the error for flags that a command does not take, or whose values are wrong. It names the flag that
// was probably meant.
func FlagError(cmd *cobra.Command, err error) error {
	said := err.Error()
	var unknown *pflag.NotExistError
	var wrong *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if like := text.Nearest(unknown.GetSpecifiedName(), known); like != "" {
			return fault.New(fault.Invalid, "%s; did you mean --%s? See %s --help", err, like, cmd.CommandPath())
		}
	case errors.As(err, &wrong):
		said = fmt.Sprintf("--%s: %s", wrong.GetFlag().Name, wanted(wrong))
	}
	return fault.New(fault.Invalid, "%s; see %s --help", said, cmd.CommandPath())
}

// wanted says what the value of a flag must be.
func wanted(wrong *pflag.InvalidValueError) string {
	switch wrong.GetFlag().Value.Type() {
	case "int", "int64":
		return fmt.Sprintf("want a whole number, not %q", wrong.GetValue())
	case "float64":
		return fmt.Sprintf("want a number, not %q", wrong.GetValue())
	case "bool":
		return fmt.Sprintf("want true or false, not %q", wrong.GetValue())
	}
	return wrong.Unwrap().Error()
}

// checkFlags returns the error for flags that are missing or exclude each other. Cobra's own checks come later and
// return errors that are no faults.
func checkFlags(cmd *cobra.Command) error {
	var missing []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 && !f.Changed {
			missing = append(missing, "--"+f.Name)
		}
	})
	if len(missing) > 0 {
		return fault.New(fault.Invalid, "%s needs %s; see %s --help", cmd.CommandPath(), strings.Join(missing, " and "),
			cmd.CommandPath())
	}
	if err := cmd.ValidateFlagGroups(); err != nil {
		return FlagError(cmd, err)
	}
	return nil
}

// DidYouMean returns "; did you mean NAME?" with the name among names that word was probably meant to be, or "".
func DidYouMean(word string, names []string) string {
	if like := text.Nearest(word, names); like != "" {
		return "; did you mean " + like + "?"
	}
	return ""
}

// FirstOf returns the first of its arguments that is not empty, or "".
func FirstOf(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}

// ReadFile reads the named file, or standard input for "-".
func ReadFile(cmd *cobra.Command, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%s", err)
	}
	return raw, nil
}

// Note adds err, if there is one, to the faults of a command as one of the given flag.
func Note(bad *fault.Fields, flag string, err error) {
	if err != nil {
		bad.Add(flag, "%s", err)
	}
}

// ParseSeconds parses a duration such as "90m" or "5400" into seconds.
func ParseSeconds(s string) (int64, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d%time.Second != 0 {
		return 0, fmt.Errorf("want whole seconds, such as 90m, 2h or 5400")
	}
	return int64(d / time.Second), nil
}
