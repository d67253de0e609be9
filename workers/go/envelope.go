package pinlater

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The format of bodies that docs/workers-bodies.md describes.
const (
	version      = 1
	jsonLine     = "PINLATER/1 application/json\n"
	resultHeader = "pinlater-result"
	secretHeader = "pinlater-secret"
	itemHeader   = "pinlater-item"
	secretMask   = "***"
	// A shorter text is in too many others.
	shortestSecret = 4
)

var firstLine = regexp.MustCompile(`^PINLATER/([0-9]{1,9}) +([^\n]{1,100})\n`)

type envelope struct {
	Job      string            `json:"job"`
	Args     []json.RawMessage `json:"args,omitempty"`
	Kwargs   json.RawMessage   `json:"kwargs,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Snoozes  int               `json:"snoozes,omitempty"`
	Attempts int               `json:"attempts,omitempty"`
}

// readEnvelope gives nil for a body that is none of the framework's. A body of a later version, or in MessagePack, is a
// job of a type that nobody here knows, so that it is left to other workers.
func readEnvelope(body []byte) (*envelope, error) {
	match := firstLine.FindSubmatch(body)
	if match == nil {
		return nil, nil
	}
	number, _ := strconv.Atoi(string(match[1]))
	kind := strings.ToLower(strings.TrimSpace(strings.SplitN(string(match[2]), ";", 2)[0]))
	switch {
	case number > version:
		return &envelope{Job: fmt.Sprintf("PINLATER/%d", number)}, nil
	case number == version && kind == "application/msgpack":
		return &envelope{Job: "PINLATER/1 " + kind}, nil
	case number != version || kind != "application/json":
		return nil, fmt.Errorf("a body that begins with %q; allowed: version %d, application/json", match[0], version)
	}
	found, text := &envelope{}, body[len(match[0]):]
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("a body of %s that cannot be read: a text in it is not UTF-8", kind)
	}
	if err := json.Unmarshal(text, found); err != nil {
		return nil, fmt.Errorf("a body of %s that cannot be read: %w", kind, err)
	}
	if string(found.Kwargs) == "null" {
		found.Kwargs = nil
	}
	if found.Job == "" || found.Snoozes < 0 || found.Attempts < 0 || len(found.Kwargs) > 0 && found.Kwargs[0] != '{' {
		return nil, fmt.Errorf("a body of %s whose map has no job, or a value that is not allowed", kind)
	}
	return found, nil
}

func (e *envelope) body() ([]byte, error) { return written(jsonLine, e) }

// written is a value in JSON behind a first line.
func written(line string, value any) ([]byte, error) {
	buffer := bytes.NewBufferString(line)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// readResult reads what written has written, with a first line or, as of an item of a flow, without one.
func readResult(result []byte, into any) error {
	text := result
	if match := firstLine.FindSubmatch(result); match != nil {
		if !bytes.HasPrefix(match[2], []byte("application/json")) {
			return fmt.Errorf("pinlater: a result of %s, which this package does not read", match[2])
		}
		text = result[len(match[0]):]
	}
	return json.Unmarshal(text, into)
}

// masked hides the values of arguments that are marked as secret.
func (e *envelope) masked(text string) string {
	if e == nil || e.Headers[secretHeader] == "" {
		return text
	}
	var named map[string]json.RawMessage
	_ = json.Unmarshal(e.Kwargs, &named) // its producer's: what is no map has no names
	var secrets []string
	for _, key := range strings.Fields(e.Headers[secretHeader]) {
		value := named[key]
		if index, err := strconv.Atoi(key); err == nil && index >= 0 && index < len(e.Args) {
			value = e.Args[index]
		}
		var plain any
		if json.Unmarshal(value, &plain) == nil {
			secrets = texts(plain, secrets)
		}
	}
	sort.Slice(secrets, func(i, j int) bool { return len(secrets[i]) > len(secrets[j]) })
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, secretMask)
	}
	return text
}

// texts adds those in a value that are long enough to be told from other text.
func texts(value any, found []string) []string {
	switch value := value.(type) {
	case []any:
		for _, each := range value {
			found = texts(each, found)
		}
	case map[string]any:
		for _, each := range value {
			found = texts(each, found)
		}
	case string, float64:
		if text := fmt.Sprint(value); len(text) >= shortestSecret {
			found = append(found, text)
		}
	}
	return found
}
