# Cholesterol on age and sex over twenty completed tables, pooled by Rubin's rules. Base R only.
#   Rscript analysis.R FOLDER      (FOLDER holds mice_long.csv and imputations.csv)
folder <- commandArgs(trailingOnly = TRUE)[1]
if (is.na(folder)) folder <- "."

released <- read.csv(file.path(folder, "imputations.csv"))
cat("missing values:", nrow(released), " released:", sum(tolower(as.character(released$released)) == "true"), "\n")

long <- read.csv(file.path(folder, "mice_long.csv"))
# With the package mice: fit <- with(mice::as.mids(long), lm(log(cholesterol) ~ age + sex)); summary(mice::pool(fit))

# Variances that count patients, not visits: the sandwich over patients.
fit_one <- function(table) {
  model <- lm(log(cholesterol) ~ age + sex, data = table)
  design <- model.matrix(model)
  scores <- rowsum(design * residuals(model), table$subject_id)
  bread <- solve(crossprod(design))
  list(estimate = coef(model), variance = diag(bread %*% crossprod(scores) %*% bread))
}

fits <- lapply(split(long, long$.imp)[-1], fit_one) # the first is the table as it was
draws <- length(fits)
estimates <- sapply(fits, `[[`, "estimate")
within <- rowMeans(sapply(fits, `[[`, "variance"))
between <- apply(estimates, 1, var)
pooled <- data.frame(estimate = rowMeans(estimates), se = sqrt(within + (1 + 1 / draws) * between))
pooled$missing_information <- round((1 + 1 / draws) * between / pooled$se^2, 2)
cat("log cholesterol, pooled over", draws, "tables\n")
print(round(pooled, 4))
