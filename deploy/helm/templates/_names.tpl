{{- define "leadlog.labels" -}}
app.kubernetes.io/name: leadlog
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "leadlog.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "leadlog.secret" -}}
{{ required "secret: the name of the Secret with the keys and addresses" .Values.secret }}
{{- end }}
{{- define "leadlog.base" -}}
{{ .Values.settings.LEADLOG_BASE_PATH | default "" | trimSuffix "/" }}
{{- end }}
{{- define "leadlog.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
{{- define "leadlog.user" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end }}
