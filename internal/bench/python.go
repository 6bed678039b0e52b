package bench

import (
	"os/exec"
	"strings"
)

// Missing says in words what keeps a peer from running: no Python, or modules
// that it cannot import. It is empty when the peer can run. The words belong
// into the note of the rows that stay without a peer.
func Missing(python string, modules ...string) string {
	if python == "" {
		return "peer not measured: no Python given"
	}
	text, err := exec.Command(python, append([]string{"-c", `import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        print(name)`}, modules...)...).Output()
	if err != nil {
		return "peer not measured: " + python + " does not run: " + err.Error()
	}
	if names := strings.Fields(string(text)); len(names) > 0 {
		return "peer not measured: Python has no " + strings.Join(names, ", ")
	}
	return ""
}
