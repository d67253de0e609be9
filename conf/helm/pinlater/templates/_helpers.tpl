{{- define "pinlater.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "pinlater.labels" -}}
app.kubernetes.io/name: pinlater
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "pinlater.selector" -}}
app.kubernetes.io/name: pinlater
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pinlater.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Whether jobs lie in SQLite on the pod's own volume. */}}
{{- define "pinlater.embedded" -}}
{{- if not (or .Values.server.stores (has "stores" .Values.secret.keys)) }}yes{{ end -}}
{{- end -}}

{{/* Whether pods have volumes of their own: SQLite, or an overflow shard. */}}
{{- define "pinlater.stateful" -}}
{{- if or (include "pinlater.embedded" .) .Values.server.settings.overflow }}yes{{ end -}}
{{- end -}}

{{- define "pinlater.config" -}}
host = "0.0.0.0"
port = 9010
http = "0.0.0.0:9011"
api = "0.0.0.0:9012"
data = "/var/lib/pinlater"
{{- if not (or (include "pinlater.embedded" .) (has "flows" .Values.secret.keys) (hasKey .Values.server.settings "flows")) }}
flows = "none"
{{- end }}
{{- if .Values.server.rules }}
rules = "/etc/pinlater/rules.toml"
{{- end }}
{{- if .Values.tls.secretName }}
tls-cert = "/etc/pinlater-tls/tls.crt"
tls-key = "/etc/pinlater-tls/tls.key"
tls-ca = "/etc/pinlater-tls/ca.crt"
{{- if .Values.tls.clientCertificates }}
tls-client-ca = "/etc/pinlater-tls/ca.crt"
{{- end }}
{{- end }}
{{- range $key := .Values.secret.keys }}
{{- if eq $key "stores" }}
store-file = ["/etc/pinlater-secret/stores"]
{{- else if has $key (list "bodies" "alarm-webhook") }}
{{ $key }}-file = ["/etc/pinlater-secret/{{ $key }}"]
{{- else }}
{{ $key }}-file = "/etc/pinlater-secret/{{ $key }}"
{{- end }}
{{- end }}
{{- range $name, $value := .Values.server.settings }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- range .Values.server.stores }}

[[store]]
{{- range $name, $value := . }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{ end -}}

{{- define "pinlater.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "pinlater.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "pinlater.account" -}}
{{- with .Values.serviceAccount.name }}
serviceAccountName: {{ . }}
{{- else }}
automountServiceAccountToken: false
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end -}}
